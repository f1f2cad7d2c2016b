//! The two sums of SQLite: the one over a page, as its `cksumvfs` writes it, and the one that runs along the write-ahead log.

/// Bytes of a page. Isobar's registries have no other pages.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Bytes at the end of each page that hold its checksum and that SQLite does not use.
pub(crate) const RESERVED_BYTES: u8 = 8;
/// Where the checksum begins.
const CONTENT_BYTES: usize = PAGE_BYTES - RESERVED_BYTES as usize;

/// Both files are sums of this kind: each step can be undone, so damage within eight bytes always changes the outcome.
pub(crate) type Sums = (u32, u32);

/// A whole page.
pub(crate) type Page = [u8; PAGE_BYTES];

/// Goes on with the sums over more bytes, a multiple of eight, read as words by `word`.
fn run(bytes: &[u8], from: Sums, word: fn([u8; 4]) -> u32) -> Sums {
    let (pairs, _) = bytes.as_chunks::<8>();
    pairs.iter().fold(from, |(first, second), &[a, b, c, d, e, f, g, h]| {
        let first = first.wrapping_add(word([a, b, c, d])).wrapping_add(second);
        (first, second.wrapping_add(word([e, f, g, h])).wrapping_add(first))
    })
}

/// The checksum of a page: of all of it but where the checksum stands.
pub(crate) fn of_page(page: &Page) -> [u8; 8] {
    let (first, second) = run(page.get(..CONTENT_BYTES).unwrap_or_default(), (0, 0), u32::from_le_bytes);
    (u64::from(second) << 32 | u64::from(first)).to_le_bytes()
}

/// Whether a page is as it was written. One that is all zeros was never written: SQLite leaves such holes.
pub(crate) fn fits(page: &Page) -> bool {
    page.get(CONTENT_BYTES..) == Some(of_page(page).as_slice())
}

/// Writes its checksum into a page.
pub(crate) fn seal(page: &mut Page) {
    let sum = of_page(page);
    if let Some(end) = page.get_mut(CONTENT_BYTES..) {
        end.copy_from_slice(&sum);
    }
}

/// Goes on with the sums of the write-ahead log. Its words have the order of the machine that wrote it.
pub(crate) fn along_the_log(bytes: &[u8], from: Sums) -> Sums {
    run(bytes, from, u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_sealed_as_cksumvfs_does_it() {
        let mut page: Page = std::array::from_fn(|at| at as u8);
        seal(&mut page);
        // Two sums, each word added to one of them together with the other.
        let (mut first, mut second) = (0_u32, 0_u32);
        for at in (0..PAGE_BYTES - 8).step_by(8) {
            let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
            first = first.wrapping_add(word(at).wrapping_add(second));
            second = second.wrapping_add(word(at + 4).wrapping_add(first));
        }
        assert_eq!(page[PAGE_BYTES - 8..PAGE_BYTES - 4], first.to_le_bytes());
        assert_eq!(page[PAGE_BYTES - 4..], second.to_le_bytes());
        assert!(fits(&page));
    }

    #[test]
    fn every_single_bit_counts() {
        let mut page: Page = std::array::from_fn(|at| (at * 7) as u8);
        seal(&mut page);
        for at in 0..PAGE_BYTES {
            for bit in 0..8 {
                page[at] ^= 1 << bit;
                assert!(!fits(&page), "{at} {bit}");
                page[at] ^= 1 << bit;
            }
        }
        assert!(fits(&[0; PAGE_BYTES]), "a hole");
    }
}
