//! Versions of designs.

use isobar_model::ids::{ProjectId, UserId};
use isobar_model::project::SpecificationInput;
use isobar_model::retention::DesignRetention;
use isobar_model::time::Timestamp;
use isobar_model::version::{IfMatch, SpecificationVersion, VersionNumber};

use super::given::{self, at, json, may, sees, user_may};
use isobar_store::error::StoreError;
use isobar_store::registry::{NewSpecification, Registry, VERSIONS_MAX};

/// Returns a design with this many elements.
fn design(name: &str, elements: usize) -> SpecificationInput {
    let elements: Vec<_> = (0..elements).map(|number| format!(r#""e{number}":{{"type":"storage"}}"#)).collect();
    SpecificationInput {
        name: name.to_owned(),
        create_version: "2".to_owned(),
        description: format!("of {name}"),
        meta: json(r#"{"z" : 1.10}"#),
        planes: json(&format!(r#"{{"cloud":{{"elements":{{{}}}}},"n":12345678901234567890}}"#, elements.join(","))),
    }
}

async fn writes(r: &Registry, project: ProjectId, name: &str, now: Timestamp) -> SpecificationVersion {
    let new = NewSpecification::new(design(name, 2));
    r.specification_write(&may(project), &new, None, &[], &DesignRetention::new(), now).await.unwrap().1
}

async fn numbers(r: &Registry, project: ProjectId) -> Vec<u64> {
    let versions = r.specification_versions(&sees(project)).await.unwrap();
    versions.into_iter().map(|version| version.number.0).collect()
}

/// Checks that a project has a version from the start, and one more with each written design.
pub async fn every_written_design_is_kept(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    let ana = UserId(given::uuid());
    let first = r.specification_versions(&sees(project)).await.unwrap();
    assert_eq!((first.len(), first[0].number, first[0].element_count), (1, VersionNumber::FIRST, 0));
    let new = NewSpecification::new(design("one", 3));
    let (written, version) =
        r.specification_write(&user_may(ana, project), &new, None, &[], &DesignRetention::new(), at(7)).await.unwrap();
    let expected = SpecificationVersion {
        number: VersionNumber(2),
        created_at: at(7),
        created_by: Some(ana),
        name: "one".to_owned(),
        element_count: 3,
    };
    assert_eq!((&version, written.version, written.last_modified), (&expected, expected.number, at(7)));
    assert_eq!(writes(r, project, "two", at(8)).await.created_by, None);
    let kept = r.specification_versions(&sees(project)).await.unwrap();
    assert_eq!((kept.len(), &kept[1], &kept[2]), (3, &expected, &first[0]));
    assert_eq!(r.specification_version_head(&sees(project), expected.number).await.unwrap(), Some(expected.clone()));
    let whole = r.specification_version(&sees(project), expected.number).await.unwrap().unwrap().unpack().unwrap();
    let (content, input) = (whole.content, design("one", 3));
    assert_eq!(whole.version, expected);
    assert_eq!((content.meta, content.planes), (input.meta, input.planes));
    assert_eq!(
        (content.name, content.create_version, content.description),
        (input.name, input.create_version, input.description)
    );
    let nobody = ProjectId(given::uuid());
    for (project, number) in [(project, 4), (project, 0), (project, u64::MAX), (nobody, 1)] {
        let number = VersionNumber(number);
        assert_eq!(r.specification_version_head(&sees(project), number).await.unwrap(), None);
        assert!(r.specification_version(&sees(project), number).await.unwrap().is_none());
    }
    assert_eq!(r.check().await.unwrap(), Vec::<String>::new());
}

/// Checks that the newest versions are kept, that their numbers continue, and that those of another project stay.
// Holds: c13.versions
pub async fn the_newest_versions_are_kept(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let (project, other) = (given::project(r, home, "p").await.id, given::project(r, home, "q").await.id);
    let written = VERSIONS_MAX + 5;
    for number in 2..=written {
        assert_eq!(writes(r, project, "p", at(number as i64)).await.number, VersionNumber(number));
    }
    let expected: Vec<_> = (written - VERSIONS_MAX + 1..=written).rev().collect();
    assert_eq!(numbers(r, project).await, expected);
    assert!(r.specification_version(&sees(project), VersionNumber(5)).await.unwrap().is_none());
    assert_eq!(numbers(r, other).await, [1]);
    assert_eq!(r.check().await.unwrap(), Vec::<String>::new());
}

/// Checks that a design is overwritten only with its own tag.
pub async fn design_is_written_with_a_required_tag_only(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    let tag = async || r.specification_tag(&sees(project)).await.unwrap().unwrap();
    let first = tag().await;
    assert_eq!(r.specification_fetch(&sees(project)).await.unwrap().unwrap().tag(), first);
    let write = async |required: IfMatch| {
        let new = NewSpecification::new(design("changed", 1));
        r.specification_write(&may(project), &new, Some(&required), &[], &DesignRetention::new(), at(3))
            .await
            .map(|(written, _)| written)
    };
    let tags = |tags: &[String]| IfMatch::Tags(tags.to_vec());
    let second = write(tags(&["other".to_owned(), first.to_string()])).await.unwrap();
    assert_eq!(second.tag(), tag().await);
    assert_ne!(second.tag(), first);
    for outdated in [tags(&[first.to_string()]), tags(&[]), tags(&["*".to_owned()])] {
        assert!(matches!(write(outdated).await, Err(StoreError::Outdated(_))));
    }
    assert_eq!((tag().await, numbers(r, project).await), (second.tag(), vec![2, 1]));
    write(IfMatch::Any).await.unwrap();
    assert_eq!(numbers(r, project).await, [3, 2, 1]);
    assert_eq!(r.specification_tag(&sees(ProjectId(given::uuid()))).await.unwrap(), None);
}

/// Checks that of many writes that require the same tag one wins, and that no number is assigned twice.
pub async fn concurrent_writes_with_one_tag_have_one_winner(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    for round in 0..4 {
        let required = IfMatch::Tags(vec![r.specification_tag(&sees(project)).await.unwrap().unwrap().to_string()]);
        let writers = (0..8).map(|writer| {
            // Every fourth write requires no tag, and always succeeds.
            let (r, required) = (r.clone(), Some(required.clone()).filter(|_| writer % 4 > 0));
            tokio::spawn(async move {
                let new = NewSpecification::new(design(&format!("of {writer}"), 1));
                let written = r
                    .specification_write(
                        &may(project),
                        &new,
                        required.as_ref(),
                        &[],
                        &DesignRetention::new(),
                        at(round),
                    )
                    .await;
                (required.is_some(), written.map(|(_, version)| version))
            })
        });
        let (mut given_out, mut won) = (Vec::new(), 0);
        for written in futures::future::join_all(writers).await {
            match written.unwrap() {
                (requires, Ok(version)) => {
                    won += i32::from(requires);
                    given_out.push(version);
                }
                (true, Err(StoreError::Outdated(_))) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(won <= 1, "{won} who required the same tag have written");
        given_out.sort_by_key(|version| std::cmp::Reverse(version.number));
        let kept = r.specification_versions(&sees(project)).await.unwrap();
        assert_eq!(&kept[..given_out.len()], given_out);
        let newest = r.specification_fetch(&sees(project)).await.unwrap().unwrap();
        assert_eq!((newest.version, &newest.name), (kept[0].number, &kept[0].name));
    }
    let all = numbers(r, project).await;
    assert!(all.windows(2).all(|pair| pair[0] == pair[1] + 1), "{all:?}");
    assert_eq!(r.check().await.unwrap(), Vec::<String>::new());
}

/// Checks that of concurrent writes that all require one tag exactly one succeeds.
// Holds: c13.etag
pub async fn exactly_one_write_with_a_required_tag_succeeds(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    let required = IfMatch::Tags(vec![r.specification_tag(&sees(project)).await.unwrap().unwrap().to_string()]);
    let writers = (0..12).map(|writer| {
        let (r, required) = (r.clone(), required.clone());
        tokio::spawn(async move {
            let new = NewSpecification::new(design(&format!("of {writer}"), 1));
            match r.specification_write(&may(project), &new, Some(&required), &[], &DesignRetention::new(), at(0)).await
            {
                Ok(_) => 1,
                Err(StoreError::Outdated(_)) => 0,
                Err(other) => panic!("{other:?}"),
            }
        })
    });
    let won: i32 = futures::future::join_all(writers).await.into_iter().map(Result::unwrap).sum();
    assert_eq!((won, numbers(r, project).await), (1, vec![2, 1]));
}

/// Checks that versions are deleted with their project and do not prevent its deletion, even while another version is
/// written.
// Holds: c13.versions
pub async fn versions_are_deleted_with_their_project(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let (gone, stays) = (given::project(r, home, "p").await.id, given::project(r, home, "q").await.id);
    writes(r, gone, "p", at(1)).await;
    r.project_delete(&may(gone)).await.unwrap();
    assert_eq!((numbers(r, gone).await, numbers(r, stays).await), (vec![], vec![1]));
    let new = NewSpecification::new(design("late", 1));
    let late = r.specification_write(&may(gone), &new, Some(&IfMatch::Any), &[], &DesignRetention::new(), at(2)).await;
    assert!(matches!(late, Err(StoreError::Gone("project"))), "{late:?}");
    for _ in 0..8 {
        let project = given::project(r, home, "r").await.id;
        let permit = may(project);
        let kept = DesignRetention::new();
        let (written, deleted) =
            tokio::join!(r.specification_write(&permit, &new, None, &[], &kept, at(3)), r.project_delete(&permit));
        deleted.unwrap();
        assert!(matches!(written, Ok(_) | Err(StoreError::Gone("project"))), "{written:?}");
        assert_eq!(numbers(r, project).await, [0; 0]);
    }
    assert_eq!(r.check().await.unwrap(), Vec::<String>::new());
}
