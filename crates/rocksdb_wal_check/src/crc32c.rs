//! CRC-32C, the checksum of RocksDB's log records: computed from tables, eight bytes at a time.

const POLYNOMIAL: u32 = 0x82f6_3b78;
/// The constant that RocksDB adds to a checksum that is stored with the bytes that it covers.
const MASK_DELTA: u32 = 0xa282_ead8;

static CRC_TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut sum, mut bit) = (byte as u32, 0);
        while bit < 8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before: u32 = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// Computes the checksum.
pub fn of(bytes: &[u8]) -> u32 {
    let (eights, rest) = bytes.as_chunks::<8>();
    let sum = eights.iter().fold(!0, |sum: u32, eight| {
        let low = sum ^ u32::from_le_bytes([eight[0], eight[1], eight[2], eight[3]]);
        let at = |table: usize, byte: u32| CRC_TABLES[table][(byte & 0xff) as usize];
        let byte = |table: usize, place: usize| CRC_TABLES[table][usize::from(eight[place])];
        at(7, low)
            ^ at(6, low >> 8)
            ^ at(5, low >> 16)
            ^ at(4, low >> 24)
            ^ byte(3, 4)
            ^ byte(2, 5)
            ^ byte(1, 6)
            ^ byte(0, 7)
    });
    !rest.iter().fold(sum, |sum, byte| sum >> 8 ^ CRC_TABLES[0][usize::from(sum as u8 ^ byte)])
}

/// Computes the checksum in the form in which RocksDB stores it in its logs.
pub fn masked(bytes: &[u8]) -> u32 {
    of(bytes).rotate_right(15).wrapping_add(MASK_DELTA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_rfc_3720() {
        // RFC 3720, B.4.
        assert_eq!(of(b""), 0);
        assert_eq!(of(&[0; 32]), 0x8a91_36aa);
        assert_eq!(of(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(of(&(0..32).collect::<Vec<u8>>()), 0x46dd_794e);
        assert_eq!(of(b"123456789"), 0xe306_9283);
    }
}
