//! The two checksums of SQLite: that of a page, as `cksumvfs` writes it, and the running one of the write-ahead log.

/// Bytes of a page; no other page size is supported.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Bytes reserved at the end of each page, which hold its checksum.
pub(crate) const RESERVED_BYTES: u8 = 8;
/// Bytes of a page before its checksum.
const CONTENT_BYTES: usize = PAGE_BYTES - RESERVED_BYTES as usize;

/// A pair of sums. Each step of the computation is reversible, so a change within eight bytes always changes the
/// result.
pub(crate) type Sums = (u32, u32);

/// The bytes of a page.
pub(crate) type Page = [u8; PAGE_BYTES];

/// Continues sums over more bytes, whose number is a multiple of eight; `word` converts them to integers.
fn run(bytes: &[u8], from: Sums, word: fn([u8; 4]) -> u32) -> Sums {
    let (pairs, _) = bytes.as_chunks::<8>();
    pairs.iter().fold(from, |(first, second), &[a, b, c, d, e, f, g, h]| {
        let first = first.wrapping_add(word([a, b, c, d])).wrapping_add(second);
        (first, second.wrapping_add(word([e, f, g, h])).wrapping_add(first))
    })
}

/// Computes the checksum of a page, without the bytes of the checksum itself.
pub(crate) fn of_page(page: &Page) -> [u8; 8] {
    let (first, second) = run(page.get(..CONTENT_BYTES).unwrap_or_default(), (0, 0), u32::from_le_bytes);
    (u64::from(second) << 32 | u64::from(first)).to_le_bytes()
}

/// Returns true if a page agrees with its checksum. So does a page of zeros, which was never written: SQLite leaves
/// such holes.
pub(crate) fn fits(page: &Page) -> bool {
    page.get(CONTENT_BYTES..) == Some(of_page(page).as_slice())
}

/// Writes the checksum into a page.
pub(crate) fn seal(page: &mut Page) {
    let sum = of_page(page);
    if let Some(end) = page.get_mut(CONTENT_BYTES..) {
        end.copy_from_slice(&sum);
    }
}

/// Continues the sums of the write-ahead log. Their words have the byte order of the machine that wrote the log.
pub(crate) fn along_the_log(bytes: &[u8], from: Sums) -> Sums {
    run(bytes, from, u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_checksum_is_that_of_cksumvfs() {
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
    fn page_with_a_flipped_bit_does_not_fit() {
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
