//! Notes of a registry about its telemetry stores. Every other store is refused: of two processes with one registry and
//! different telemetry each would have its half.

/// A telemetry store, as a registry notes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedStore {
    /// Number of the database; 0 for a folder.
    pub number: u16,
    /// Identity of the store, which backups, dumps and moves carry.
    pub identity: String,
    /// Place where it was served last, for messages.
    pub place: String,
}

/// The stores that a registry knows.
#[derive(Clone, Debug, Default)]
pub struct KnownStores {
    /// Numbers of the databases in which it has devices.
    pub used: Vec<u16>,
    /// Stores that it has noted.
    pub noted: Vec<NotedStore>,
}

/// A telemetry store that the settings name, as it was found.
#[derive(Clone, Debug)]
pub struct NamedStore {
    /// Its place.
    pub place: String,
    /// Its identity, unless there is no store yet.
    pub identity: Option<String>,
    /// Its number, if it has one.
    pub number: Option<u16>,
}

/// The error for telemetry that is not the registry's.
#[derive(Debug, thiserror::Error)]
#[error(
    "the registry has telemetry store {} with the identity {} (served last as {}), and stores.telemetry names {found}: nothing \
     was changed. Name that store, the same for every node, or bring it back from its backup; if it is lost for good, or \
     another one is to take its place, run isobar recover", .expected.number, .expected.identity, .expected.place
)]
pub struct ForeignStore {
    /// The store that the registry has noted.
    pub expected: NotedStore,
    /// The store that was found instead.
    pub found: String,
}

impl KnownStores {
    /// Creates the knowledge of a registry that has devices in the databases with these numbers, and has noted none.
    pub fn with_devices_in(used: &[u16]) -> Self {
        Self { used: used.to_vec(), noted: Vec::new() }
    }

    /// Returns the store that is noted with a number.
    pub fn noted_with(&self, number: u16) -> Option<&NotedStore> {
        self.noted.iter().find(|noted| noted.number == number)
    }

    /// Checks the stores that the settings name.
    ///
    /// # Errors
    /// One has the number of another store that is noted, or none of them is noted, and others are.
    pub fn must_fit(&self, named: &[NamedStore]) -> Result<(), ForeignStore> {
        for store in named {
            let noted = store.number.and_then(|number| self.noted_with(number));
            if let Some(expected) = noted.filter(|noted| store.identity.as_ref() != Some(&noted.identity)) {
                return Err(ForeignStore { expected: expected.clone(), found: store.description() });
            }
        }
        let is_noted =
            |store: &NamedStore| self.noted.iter().any(|noted| store.identity.as_ref() == Some(&noted.identity));
        match self.noted.first() {
            Some(expected) if !named.iter().any(is_noted) => {
                let found: Vec<String> = named.iter().map(NamedStore::description).collect();
                Err(ForeignStore { expected: expected.clone(), found: found.join(" and ") })
            }
            _ => Ok(()),
        }
    }
}

impl NamedStore {
    /// Returns its place and what is there, for messages.
    pub fn description(&self) -> String {
        match &self.identity {
            Some(identity) => format!("{}, which has the identity {identity}", self.place),
            None => format!("{}, where there is no telemetry store", self.place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(noted: &[(u16, &str)]) -> KnownStores {
        let noted = noted.iter().map(|(number, identity)| NotedStore {
            number: *number,
            identity: (*identity).to_owned(),
            place: format!("place of {identity}"),
        });
        KnownStores { used: Vec::new(), noted: noted.collect() }
    }

    fn named(identity: Option<&str>, number: Option<u16>) -> NamedStore {
        NamedStore { place: "here".to_owned(), identity: identity.map(str::to_owned), number }
    }

    #[test]
    fn store_that_is_noted_fits_and_a_new_one_beside_it() {
        let known = known(&[(0, "a"), (1, "b")]);
        known.must_fit(&[named(Some("a"), Some(0)), named(Some("b"), Some(1)), named(None, None)]).unwrap();
        // A store that was moved has the identity before it has a number; one without devices may be left out.
        known.must_fit(&[named(Some("a"), None), named(Some("c"), Some(2))]).unwrap();
        KnownStores::default().must_fit(&[named(None, Some(0))]).unwrap();
    }

    #[test]
    fn store_that_is_not_noted_is_refused_with_both_names() {
        let known = known(&[(0, "a"), (1, "b")]);
        for wrong in [
            vec![named(Some("c"), Some(0))],
            vec![named(None, Some(0))],
            vec![named(Some("c"), None)],
            vec![named(None, None), named(Some("d"), Some(2))],
        ] {
            let told = known.must_fit(&wrong).unwrap_err().to_string();
            assert!(told.contains("identity a (served last as place of a)") && told.contains("names here"), "{told}");
        }
        let told = known.must_fit(&[named(Some("a"), Some(0)), named(Some("c"), Some(1))]).unwrap_err().to_string();
        assert!(told.contains("store 1 with the identity b") && told.contains("the identity c"), "{told}");
    }
}
