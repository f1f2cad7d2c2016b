//! Identifiers: a newtype for each noun, all UUIDv7 (contract: Conventions), and their generator.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::Rng;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::time::Timestamp;

/// The error for a text that is not an identifier.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("is not an identifier")]
pub struct NotAnId;

macro_rules! id {
    ($(#[$doc:meta] $name:ident;)*) => {$(
        #[$doc]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// Returns the identifier's 16 bytes, big-endian: byte order is time order.
            pub fn bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }

            /// Makes the identifier of these 16 bytes.
            pub fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }

            /// Returns its time, in Unix milliseconds: the first 48 bits of a UUIDv7 (RFC 9562, 5.7).
            pub fn minted_at(&self) -> Timestamp {
                let mut wide = [0; 8];
                wide[2..].copy_from_slice(&self.0.as_bytes()[..6]);
                Timestamp::from_millis(i64::from_be_bytes(wide))
            }
        }

        impl From<$name> for Uuid {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = NotAnId;

            fn from_str(text: &str) -> Result<Self, NotAnId> {
                // Accepts only the canonical form of 36 characters, lower case: no braces, URNs or bare hex.
                if text.len() != 36 || text.bytes().any(|byte| byte.is_ascii_uppercase()) {
                    return Err(NotAnId);
                }
                Uuid::try_parse(text).map(Self).map_err(|_| NotAnId)
            }
        }
    )*};
}

id! {
    /// Names an organization.
    OrganizationId;
    /// Names a dashboard of an organization.
    DashboardId;
    /// Names a link that shows a dashboard on a screen.
    BoardLinkId;
    /// Names a user.
    UserId;
    /// Names a project; `id` and `uuid` are the same value.
    ProjectId;
    /// Names a device; `id` and `uuid` are the same value.
    DeviceId;
    /// Names a device event, a cloud event or a stored value.
    EventId;
    /// Names a session: one login and what was refreshed from it.
    SessionId;
    /// Names an API key.
    ApiKeyId;
    /// Names one record of a device setting.
    SettingId;
    /// Names a notification.
    NotificationId;
    /// Names an alarm.
    AlarmId;
    /// Names a view of the device list.
    ViewId;
}

impl NotificationId {
    /// Derives an identifier from the time and `parts`. The same input gives the same identifier, so that a repeated
    /// notice is recognized.
    pub fn derived(at: Timestamp, parts: &[&str]) -> Self {
        Self(derived(at, parts))
    }
}

impl AlarmId {
    /// Derives the identifier of the alarm that was raised at `at` from the time and `parts`.
    pub fn derived(at: Timestamp, parts: &[&str]) -> Self {
        Self(derived(at, parts))
    }
}

/// Derives a UUIDv7 from a time and a SHA-256 digest of `parts` in place of the random bits (RFC 9562, 5.7).
fn derived(at: Timestamp, parts: &[&str]) -> Uuid {
    let mut digest = Sha256::new();
    for part in parts {
        // Lengths keep different lists of parts from hashing the same bytes.
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    }
    let digest: [u8; 32] = digest.finalize().into();
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&(at.millis().max(0) as u64).to_be_bytes()[2..]);
    bytes[6..].copy_from_slice(&digest[..10]);
    bytes[6] = (bytes[6] & 0x0f) | 0x70;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    Uuid::from_bytes(bytes)
}

/// Greatest number of databases that devices may be spread over.
pub const DATABASES_MAX: usize = 64;

/// The registry's number for a device, never reused. It keeps the keys of the telemetry store short. Its upper bits are the
/// number of the telemetry database that has the device, and the others are dense over all databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceKey(pub u64);

impl DeviceKey {
    /// Bits of the dense number.
    pub const DENSE_BITS: u32 = 48;

    /// Returns the number of a device in a database.
    pub const fn new(database: u16, dense: u64) -> Self {
        Self((database as u64) << Self::DENSE_BITS | dense)
    }

    /// Returns the number of the database that has the device.
    pub const fn database(self) -> u16 {
        (self.0 >> Self::DENSE_BITS) as u16
    }

    /// Returns the number without the database: no two devices of a platform have the same.
    pub const fn dense(self) -> u64 {
        self.0 & ((1 << Self::DENSE_BITS) - 1)
    }
}

/// A device as the telemetry store addresses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceRef {
    /// Its public identifier.
    pub id: DeviceId,
    /// Its number.
    pub key: DeviceKey,
}

/// Generates increasing identifiers: 48 bits of milliseconds, 12 bits of a counter, 62 random bits (RFC 9562, 6.2,
/// method 1). If the clock steps back, identifiers continue at the newest time until it has caught up, and go a
/// millisecond further after 4,096 of them.
#[derive(Debug, Default)]
pub struct IdMint {
    /// Milliseconds << 12 | counter of the newest identifier.
    newest: AtomicU64,
}

impl IdMint {
    /// Makes a generator without history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Continues after an identifier that was generated before, by this or another generator.
    pub fn go_on_behind(&self, newest: Uuid) {
        let (high, _) = newest.as_u64_pair();
        let ticket = (high >> 16) << 12 | (high & 0xfff);
        // Mostly it is there already: a read does not invalidate the cache line of other threads.
        if self.newest.load(Ordering::Relaxed) < ticket {
            self.newest.fetch_max(ticket, Ordering::Relaxed);
        }
    }

    /// Returns the next identifier: of `now`, or just after the newest one.
    pub fn mint(&self, now: Timestamp, rng: &mut impl Rng) -> Uuid {
        let floor = (now.millis().max(0) as u64) << 12;
        let before = self
            .newest
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |newest| Some(floor.max(newest + 1)))
            .unwrap_or_else(|newest| newest);
        let ticket = floor.max(before + 1);
        let (millis, counter) = (ticket >> 12, ticket & 0xfff);
        let high = (millis << 16) | 0x7000 | counter;
        let low = (rng.next_u64() >> 2) | (0b10 << 62);
        Uuid::from_u64_pair(high, low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::seeded;

    // Holds: c18.time
    #[test]
    fn identifiers_continue_after_those_of_another_mint() {
        let (now, ahead, mut rng) = (Timestamp::from_millis(5_000), Timestamp::from_millis(9_000), seeded(2));
        let (former, mint) = (IdMint::new(), IdMint::new());
        let mut newest = former.mint(ahead, &mut rng);
        mint.go_on_behind(Uuid::nil());
        assert_eq!(EventId(mint.mint(now, &mut rng)).minted_at(), now);
        mint.go_on_behind(newest);
        for _ in 0..5_000 {
            let next = mint.mint(now, &mut rng);
            assert!(next > newest && EventId(next).minted_at() >= EventId(newest).minted_at());
            newest = next;
        }
        assert_eq!(EventId(newest).minted_at().millis(), 9_001);
        assert_eq!(EventId(mint.mint(Timestamp::from_millis(10_000), &mut rng)).minted_at().millis(), 10_000);
    }

    // Holds: c1.ids, c18.time
    #[test]
    fn identifiers_grow_even_when_the_clock_steps_back() {
        let (mint, mut rng) = (IdMint::new(), seeded(1));
        let mut before = Uuid::nil();
        for millis in [5_000, 5_000, 4_000, 5_001, 1] {
            let id = mint.mint(Timestamp::from_millis(millis), &mut rng);
            assert!(id > before);
            assert_eq!(id.get_version_num(), 7);
            before = id;
        }
    }

    #[test]
    fn identifier_holds_its_millisecond() {
        let id = EventId(IdMint::new().mint(Timestamp::from_millis(1_700_000_000_123), &mut seeded(2)));
        assert_eq!(id.minted_at().millis(), 1_700_000_000_123);
    }

    #[test]
    fn derived_identifier_depends_on_time_and_parts() {
        let (now, later) = (Timestamp::from_millis(1_700_000_000_123), Timestamp::from_millis(1_700_000_000_124));
        let id = NotificationId::derived(now, &["event", "alarm"]);
        assert_eq!(id, NotificationId::derived(now, &["event", "alarm"]));
        assert_eq!((id.minted_at(), id.0.get_version_num()), (now, 7));
        assert_eq!(id.to_string().parse(), Ok(id));
        for other in [
            NotificationId::derived(later, &["event", "alarm"]),
            NotificationId::derived(now, &["eventalarm"]),
            NotificationId::derived(now, &["even", "talarm"]),
            NotificationId::derived(now, &["event", "alarm", ""]),
        ] {
            assert_ne!(other, id);
        }
    }

    // Holds: c1.ids
    #[test]
    fn identifier_in_other_than_canonical_form_is_refused() {
        assert!("01890a5d-ac96-774b-bcce-b302099a8057".parse::<DeviceId>().is_ok());
        for bad in [
            "",
            "01890a5dac96774bbcceb302099a8057",
            "{01890a5d-ac96-774b-bcce-b302099a8057}",
            "01890A5D-AC96-774B-BCCE-B302099A8057",
            "../../etc/passwd",
        ] {
            assert_eq!(bad.parse::<DeviceId>(), Err(NotAnId));
        }
    }
}
