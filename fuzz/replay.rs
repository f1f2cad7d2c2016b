//! Replays a fuzz target in an ordinary test: its seeds, what the test adds to them, and mutations of both, the same ones
//! every time. The crates whose targets these are take this file in by its path.

use std::path::Path;

/// Mutations that a test tries.
const MUTATIONS: usize = 5_000;
/// Longest input that is mutated, in bytes; a longer one is only replayed.
const MUTATED_BYTES_MAX: usize = 2_048;
/// Most changes that a mutation makes.
const CHANGES_MAX: usize = 4;
/// Longest piece that is taken out, put in or doubled, in bytes.
const PIECE_BYTES_MAX: usize = 16;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Holds a property against the seeds of `fuzz/seeds/<target>`, more inputs, and mutations of all.
pub(crate) fn replay(target: &str, more: impl IntoIterator<Item = Vec<u8>>, property: fn(&[u8])) {
    let mut corpus = seeds(target);
    corpus.extend(more);
    let hold = |input: &[u8]| {
        let shown = ShownOnPanic(input);
        property(shown.0);
    };
    corpus.iter().for_each(|input| hold(input));
    corpus.retain(|input| input.len() <= MUTATED_BYTES_MAX);
    let mut chance = Chance(SEED);
    for _ in 0..MUTATIONS {
        hold(&mutated(&corpus, &mut chance));
    }
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

/// One of the inputs, changed here and there.
fn mutated(corpus: &[Vec<u8>], chance: &mut Chance) -> Vec<u8> {
    let mut input = corpus[chance.below(corpus.len())].clone();
    for _ in 0..=chance.below(CHANGES_MAX) {
        let at = chance.below(input.len() + 1);
        match chance.below(6) {
            0 => input.insert(at, chance.below(256) as u8),
            1 => input.truncate(input.len().saturating_sub(chance.below(PIECE_BYTES_MAX))),
            2 => {
                let end = (at + chance.below(PIECE_BYTES_MAX)).min(input.len());
                input.drain(at..end);
            }
            3 => {
                let piece = chance.piece(&input).to_vec();
                input.splice(at..at, piece);
            }
            4 => {
                let other = &corpus[chance.below(corpus.len())];
                input.splice(at..at, chance.piece(other).iter().copied());
            }
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << chance.below(8);
                }
            }
        }
    }
    input
}
