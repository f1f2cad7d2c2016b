//! Manages specifications of projects, and their versions (contract: Versions of a design).

use std::cmp::Ordering;

use isobar_model::access::{Action, Caller, CanRead, CanWrite};
use isobar_model::check::Faults;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{ProjectId, UserId};
use isobar_model::page::{ListRequest, Page, SortKey};
use isobar_model::project::{Specification, SpecificationInput};
use isobar_model::version::{IfMatch, SpecificationTag, SpecificationVersion, VersionNumber, WholeVersion};

use crate::Hub;
use crate::jobs::scheduler::timers_of;
use crate::support::sorting::by_fields;

const VERSION: &str = "version";

impl Hub {
    /// Fetches a project's specification.
    ///
    /// Needs `ProjectRead`.
    pub async fn specification_fetch(&self, caller: &Caller, id: ProjectId) -> Result<Specification> {
        let permit = self.0.identity.project_read(caller, id).await?;
        self.registry().specification_fetch(&permit).await?.ok_or(Error::Missing("project"))
    }

    /// Returns the entity tag of a project's specification, without the specification.
    ///
    /// Needs `ProjectRead`.
    pub async fn specification_tag(&self, caller: &Caller, id: ProjectId) -> Result<SpecificationTag> {
        let permit = self.0.identity.project_read(caller, id).await?;
        self.registry().specification_tag(&permit).await?.ok_or(Error::Missing("project"))
    }

    /// Replaces a project's specification, if its design can be executed; else the old one stays in force, and the
    /// design's faults are returned with those already found in the body. The specification is also stored as the
    /// project's newest version.
    ///
    /// Needs `ProjectUpdate`. Durable when this returns; the next event of each device runs the new design. It is
    /// compiled on a thread that may block, in a slot of its tenant.
    ///
    /// # Errors
    /// `Invalid`: all faults, each by its place. `Outdated`: the specification is not as `required`. `Busy`: too many
    /// designs wait to be compiled, or bounds of retention were loosened too often since the values that they had
    /// hidden were last deleted.
    pub async fn specification_write(
        &self,
        caller: &Caller,
        id: ProjectId,
        read: (SpecificationInput, Faults),
        required: Option<&IfMatch>,
    ) -> Result<Specification> {
        let permit = self.0.identity.project_write(caller, id, Action::ProjectUpdate).await?;
        Ok(self.put_in_force(caller, &permit, read, required).await?.0)
    }

    /// Lists the versions of a project's specification, newest first by default. The writer of a version is shown if it
    /// is within the caller's reach.
    ///
    /// Needs `ProjectRead`.
    pub async fn specification_versions(
        &self,
        caller: &Caller,
        id: ProjectId,
        request: ListRequest,
    ) -> Result<Page<SpecificationVersion>> {
        let permit = self.0.identity.project_read(caller, id).await?;
        let mut versions = self.registry().specification_versions(&permit).await?;
        // The versions are in their default order already.
        if !request.sort.is_empty() {
            versions.sort_by(|left, right| by_keys(&request.sort, left, right));
        }
        let mut page = Page::of(versions, request.page);
        self.hide_writers(caller, id, page.items.iter_mut()).await?;
        Ok(page)
    }

    /// Reads one version with its content. A large one is unpacked on a thread that may block, in a slot of its tenant.
    ///
    /// Needs `ProjectRead`.
    ///
    /// # Errors
    /// `Missing`: there is no such project or version, or it was removed. `Busy`: too many wait for a slot.
    pub async fn specification_version(
        &self,
        caller: &Caller,
        id: ProjectId,
        number: VersionNumber,
    ) -> Result<WholeVersion> {
        let permit = self.0.identity.project_read(caller, id).await?;
        let mut whole = self.unpacked(caller, &permit, number).await?;
        self.hide_writers(caller, id, std::iter::once(&mut whole.version)).await?;
        Ok(whole)
    }

    /// Restores a version: writes it as a new one, checked by today's rules.
    ///
    /// Needs `ProjectUpdate`. Durable when this returns, as with [`Hub::specification_write`].
    ///
    /// # Errors
    /// `Missing`: there is no such project or version. `Invalid`: the faults of its design by today's rules, each by
    /// its place. `Outdated`: the specification in force is not as `required`. `Busy`: too many wait for a slot.
    pub async fn specification_restore(
        &self,
        caller: &Caller,
        id: ProjectId,
        number: VersionNumber,
        required: Option<&IfMatch>,
    ) -> Result<SpecificationVersion> {
        let permit = self.allow_restore(caller, id, number).await?;
        let content = self.unpacked(caller, &permit.reading(), number).await?.content;
        Ok(self.put_in_force(caller, &permit, (content, Faults::new()), required).await?.1)
    }

    /// Checks that the caller may restore a version: it exists, and the role is high enough.
    ///
    /// # Errors
    /// `Missing` before `Forbidden`.
    pub async fn allow_specification_restore(
        &self,
        caller: &Caller,
        id: ProjectId,
        number: VersionNumber,
    ) -> Result<()> {
        self.allow_restore(caller, id, number).await.map(|_| ())
    }

    async fn allow_restore(
        &self,
        caller: &Caller,
        id: ProjectId,
        number: VersionNumber,
    ) -> Result<CanWrite<ProjectId>> {
        let permit = self.0.identity.project_read(caller, id).await?;
        let there = self.registry().specification_version_head(&permit, number).await?;
        there.ok_or(Error::Missing(VERSION))?;
        self.0.identity.project_write(caller, id, Action::ProjectUpdate).await
    }

    /// Compiles and writes a specification, or returns all its faults.
    async fn put_in_force(
        &self,
        caller: &Caller,
        permit: &CanWrite<ProjectId>,
        (input, mut faults): (SpecificationInput, Faults),
        required: Option<&IfMatch>,
    ) -> Result<(Specification, SpecificationVersion)> {
        let compiled = self.0.caches.compiled_to_keep(caller, input).await?;
        let compiled = faults.gather(compiled.map_err(Error::Invalid))?;
        let Some((plan, new)) = compiled.filter(|_| !faults.any()) else { return Err(faults.into_error()) };
        let changing = self.0.jobs.retention_changes().await;
        let (timers, kept, now) = (timers_of(&plan), plan.retention(), self.now());
        let written = self.registry().specification_write(permit, &new, required, &timers, &kept, now).await?;
        self.0.caches.design_changed(*permit.target());
        drop(changing);
        self.0.jobs.retention_changed();
        Ok(written)
    }

    /// Reads a version as it was written.
    async fn unpacked(
        &self,
        caller: &Caller,
        permit: &CanRead<ProjectId>,
        number: VersionNumber,
    ) -> Result<WholeVersion> {
        let stored = self.registry().specification_version(permit, number).await?;
        let stored = stored.ok_or(Error::Missing(VERSION))?;
        let bytes = stored.unpacked_bytes()?;
        Ok(self.0.env.bodies().read(Some(caller.lineage.top()), bytes, || stored.unpack()).await??)
    }

    /// Hides the writers who are out of the caller's reach, if the project belongs to an organization above.
    async fn hide_writers<'v>(
        &self,
        caller: &Caller,
        id: ProjectId,
        versions: impl Iterator<Item = &'v mut SpecificationVersion>,
    ) -> Result<()> {
        let lineage = self.registry().project_placement(id).await?;
        if lineage.is_none_or(|lineage| caller.reaches(&lineage)) {
            return Ok(());
        }
        let mut known: Option<(UserId, bool)> = None;
        for version in versions {
            let Some(writer) = version.created_by else { continue };
            // Consecutive versions are usually by the same writer.
            let is_shown = match known {
                Some((before, is_shown)) if before == writer => is_shown,
                _ => {
                    let account = self.0.caches.account_entry(writer).await?;
                    account.is_some_and(|account| caller.reaches(&account.caller.lineage))
                }
            };
            known = Some((writer, is_shown));
            version.created_by = version.created_by.filter(|_| is_shown);
        }
        Ok(())
    }
}

/// Compares two versions by these keys.
fn by_keys(keys: &[SortKey], left: &SpecificationVersion, right: &SpecificationVersion) -> Ordering {
    let by_field = |field: &str| match field {
        "createdAt" => left.created_at.cmp(&right.created_at),
        "name" => left.name.cmp(&right.name),
        "elementCount" => left.element_count.cmp(&right.element_count),
        _ => left.number.cmp(&right.number),
    };
    by_fields(keys, by_field, left.number.cmp(&right.number))
}

#[cfg(test)]
mod tests {
    use isobar_model::time::Timestamp;

    use super::*;

    #[test]
    fn versions_have_one_order_for_every_request() {
        let version = |(number, name, element_count): (u64, &str, u64)| SpecificationVersion {
            number: VersionNumber(number),
            created_at: Timestamp::from_millis(number as i64 / 2),
            created_by: None,
            name: name.to_owned(),
            element_count,
        };
        let all = [(1, "b", 0), (2, "a", 9), (3, "b", 9), (4, "a", 1)].map(version);
        let key = |text: &str| {
            let descending = text.starts_with('-');
            SortKey { field: text.trim_start_matches('-').to_owned(), descending }
        };
        for (keys, numbers) in [
            (vec!["number"], [1, 2, 3, 4]),
            (vec!["-number"], [4, 3, 2, 1]),
            (vec!["name"], [2, 4, 1, 3]),
            (vec!["-name"], [3, 1, 4, 2]),
            (vec!["createdAt"], [1, 2, 3, 4]),
            (vec!["-elementCount", "name"], [2, 3, 4, 1]),
            (vec!["name", "-elementCount"], [2, 4, 3, 1]),
            // A repeated field does not reverse the order of numbers.
            (vec!["name", "-name"], [2, 4, 1, 3]),
        ] {
            let keys: Vec<_> = keys.into_iter().map(key).collect();
            let mut sorted = all.to_vec();
            sorted.sort_by(|left, right| by_keys(&keys, left, right));
            assert_eq!(sorted.iter().map(|version| version.number.0).collect::<Vec<_>>(), numbers, "{keys:?}");
        }
    }
}
