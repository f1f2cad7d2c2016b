//! Replays a fuzz target in an ordinary test: its seeds, what the test adds to them, and mutations of both, the same ones
//! every time. The crates whose targets these are take this file in by its path.

use std::path::Path;

/// Mutations that a test tries.
const MUTATIONS: usize = 5_000;
/// Longest input that is mutated, in bytes; a longer one is only replayed.
const MUTATED_BYTES_MAX: usize = 2_048;
/// Most changes that a mutation makes.
const CHANGES_MAX: usize = 3;
/// Longest piece that is taken out, put in or doubled, in bytes.
const PIECE_BYTES_MAX: usize = 16;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Holds a property against the seeds of `fuzz/seeds/<target>`, more inputs, and mutations of all. How many of the mutations
/// were read as what the target is about, which a property tells: with none of them it would hold of nothing.
pub(crate) fn replay(target: &str, more: impl IntoIterator<Item = Vec<u8>>, property: fn(&[u8]) -> bool) -> usize {
    let mut corpus = seeds(target);
    corpus.extend(more);
    let hold = |input: &[u8]| {
        let shown = ShownOnPanic(input);
        property(shown.0)
    };
    let mut read: Vec<_> = corpus.iter().filter(|input| hold(input)).cloned().collect();
    let is_short = |input: &Vec<u8>| input.len() <= MUTATED_BYTES_MAX;
    corpus.retain(is_short);
    read.retain(is_short);
    assert!(!read.is_empty(), "no seed of {target} is read");
    let (mut chance, given) = (Chance(SEED), read.len());
    for _ in 0..MUTATIONS {
        // Mostly of what was read: what is broken already seldom leads anywhere.
        let from = if chance.below(8) == 0 { &corpus } else { &read };
        let mut input = from[chance.below(from.len())].clone();
        for _ in 0..=chance.below(CHANGES_MAX) {
            change(&mut input, &corpus, &mut chance);
        }
        if hold(&input) && is_short(&input) {
            read.push(input);
        }
    }
    read.len() - given
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no seeds for {target}");
    paths.into_iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// An input that is told when its property fails.
struct ShownOnPanic<'a>(&'a [u8]);

impl Drop for ShownOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input was b\"{}\"", self.0.escape_ascii());
        }
    }
}

/// Xorshift64*: numbers that are the same in every run.
struct Chance(u64);

impl Chance {
    /// A number below `end`; 0 if there is none.
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        (number as usize).checked_rem(end).unwrap_or(0)
    }

    fn piece<'a>(&mut self, of: &'a [u8]) -> &'a [u8] {
        let from = self.below(of.len() + 1);
        let length = self.below(PIECE_BYTES_MAX.min(of.len() - from) + 1);
        &of[from..from + length]
    }
}

/// Changes an input somewhere.
fn change(input: &mut Vec<u8>, corpus: &[Vec<u8>], chance: &mut Chance) {
    let at = chance.below(input.len() + 1);
    match chance.below(8) {
        0 => input.insert(at, chance.below(256) as u8),
        1 => input.truncate(input.len().saturating_sub(chance.below(PIECE_BYTES_MAX))),
        2 => {
            let end = (at + chance.below(PIECE_BYTES_MAX)).min(input.len());
            input.drain(at..end);
        }
        3 => {
            let piece = chance.piece(input).to_vec();
            input.splice(at..at, piece);
        }
        4 => {
            let other = &corpus[chance.below(corpus.len())];
            input.splice(at..at, chance.piece(other).iter().copied());
        }
        5 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << chance.below(8);
            }
        }
        // A byte for another of the same input: lengths stay as they are.
        _ => {
            let other = input.get(chance.below(input.len())).copied();
            if let (Some(byte), Some(other)) = (input.get_mut(at), other) {
                *byte = other;
            }
        }
    }
}
