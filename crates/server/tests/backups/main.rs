//! Backups that the platform makes by itself (docs/backup.md): to a folder and to a bucket, restored elsewhere, with
//! all kinds of failures.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod bucket;
#[path = "../program_support/mod.rs"]
mod program_support;
#[path = "../../../store/tests/support/mod.rs"]
mod support;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use age::secrecy::ExposeSecret as _;
use bucket::{Bucket, NAME, SECRET};
use isobar_power::{becomes, becomes_blocking};
use program_support::furnished::{answers, furnish};
use program_support::site::{Api, ENVIRONMENT};
use program_support::{Serving, failure, isobar, text};
use serde_json::json;

/// A platform with settings of its own.
struct Platform {
    data: PathBuf,
    settings: Vec<(&'static str, String)>,
}

impl Platform {
    fn new(data: &Path, settings: Vec<(&'static str, String)>) -> Self {
        Self { data: data.to_owned(), settings }
    }

    /// Makes a platform that sends its backups to a folder.
    fn to_folder(data: &Path, target: &Path) -> Self {
        Self::new(data, vec![("ISOBAR_BACKUP__TARGET", target.display().to_string())])
    }

    fn set(mut self, name: &'static str, value: &str) -> Self {
        self.settings.retain(|(known, _)| *known != name);
        self.settings.push((name, value.to_owned()));
        self
    }

    fn serve(&self) -> Serving {
        let settings = self.settings.iter().map(|(name, value)| (*name, value.as_str()));
        Serving::on(&self.data, &ENVIRONMENT.into_iter().chain(settings).collect::<Vec<_>>())
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = isobar(words);
        command.args(["--config", "/dev/null", "--data"]).arg(&self.data);
        command.envs(self.settings.iter().map(|(name, value)| (*name, value)));
        command
    }

    /// Runs a command beside a server of the test.
    async fn run(&self, words: &[&str]) -> Output {
        let mut command = self.command(words);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    async fn backs_up(&self) -> String {
        let output = self.run(&["backup"]).await;
        assert!(output.status.success(), "{output:?}");
        let told = text(&output.stdout);
        assert!(told.contains("was restored and checked") && told.contains("is sound."), "{told}");
        told
    }

    /// Makes a backup that must fail; returns its error, which must not hold a secret.
    async fn fails_to_back_up(&self) -> String {
        let told = failure(&self.run(&["backup"]).await);
        assert!(!told.contains(SECRET), "{told}");
        // Only the record is left in the data folder.
        let left = std::fs::read_dir(self.data.join("backups")).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["state.json"]);
        told
    }

    async fn restores(&self, from: &str, more: &[&str]) -> String {
        let output = self.run(&[&["restore", from], more].concat()).await;
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout)
    }

    /// Makes a restore that must fail and leave nothing; returns its error.
    async fn fails_to_restore(&self, from: &str, more: &[&str]) -> String {
        let told = failure(&self.run(&[&["restore", from], more].concat()).await);
        let left = std::fs::read_dir(&self.data).into_iter().flatten().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.filter(|name| name != "isobar.lock").count(), 0, "{told}");
        told
    }
}

/// Makes a stopped platform with a device that has sent events.
async fn furnished(platform: &Platform) {
    let serving = platform.serve();
    furnish(&Api::of(&serving).await, 1).await;
    assert_eq!(serving.stop(), Some(0));
}

/// Returns the names of backups that count, oldest first: those with a note.
fn counted(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().file_name());
    let names = names.filter_map(|name| name.to_str().unwrap().strip_suffix(".json").map(str::to_owned));
    let mut names: Vec<_> = names.filter(|name| name.starts_with("isobar-")).collect();
    names.sort();
    names
}

fn names(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// Makes a key pair of age: the file with the identity, and the recipient.
fn key_pair(folder: &Path, name: &str) -> (String, String) {
    let identity = age::x25519::Identity::generate();
    let file = folder.join(name);
    std::fs::write(&file, identity.to_string().expose_secret()).unwrap();
    (file.display().to_string(), identity.to_public().to_string())
}

/// Makes a backup while the platform is served, restores it elsewhere and compares the answers of both.
async fn backup_restored_elsewhere_answers_the_same(
    platform: Platform,
    objects: &Path,
    address: &dyn Fn(&str) -> String,
) {
    let folder = tempfile::tempdir().unwrap();
    let (identity, recipient) = key_pair(folder.path(), "identity");
    let platform = platform.set("ISOBAR_BACKUP__ENCRYPT_TO", &recipient).set("ISOBAR_BACKUP__IDENTITY", &identity);
    let serving = platform.serve();
    let api = Api::of(&serving).await;
    let devices = furnish(&api, 5).await;
    let told = platform.backs_up().await;
    let names = counted(objects);
    assert!(names.len() == 1 && told.contains(&names[0]) && names[0].ends_with(".tar.age"), "{names:?}: {told}");
    let sealed = std::fs::read(objects.join(&names[0])).unwrap();
    assert!(sealed.starts_with(b"age-encryption.org/v1") && !sealed.windows(8).any(|bytes| bytes == b"registry"));
    // Equal answers twice here show that nothing changes by itself.
    let before = answers(&api, &devices).await;
    assert_eq!(before.len(), 54);
    assert_eq!(before, answers(&api, &devices).await);
    assert_eq!(serving.stop(), Some(0));

    let elsewhere = Platform::new(&folder.path().join("elsewhere"), platform.settings);
    let told = elsewhere.restores(&address(&names[0]), &[]).await;
    assert!(told.contains("Everything is sound."), "{told}");
    let serving = elsewhere.serve();
    let api = api.at(&serving);
    let after = answers(&api, &devices).await;
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before, after);
    }
    assert_eq!(serving.stop(), Some(0));
}

// Holds: c12.backups
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_in_a_bucket_restored_elsewhere_answers_the_same() {
    let (bucket, data) = (Bucket::open().await, tempfile::tempdir().unwrap());
    let platform = Platform::new(data.path(), bucket.settings());
    let address = |name: &str| bucket.address_of(&format!("isobar/{name}"));
    backup_restored_elsewhere_answers_the_same(platform, &bucket.objects(), &address).await;
    assert_eq!(bucket.unfinished(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_in_a_folder_restored_elsewhere_answers_the_same() {
    let (target, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let platform = Platform::to_folder(data.path(), target.path());
    let address = |name: &str| target.path().join(name).display().to_string();
    backup_restored_elsewhere_answers_the_same(platform, target.path(), &address).await;
}

// Holds: c12.backups
#[tokio::test]
async fn scheduled_backup_is_made_and_reported() {
    let (target, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let platform = Platform::to_folder(data.path(), target.path()).set("ISOBAR_BACKUP__SCHEDULE", "* * * * *");
    let serving = platform.serve();
    let api = Api::of(&serving).await;
    furnish(&api, 1).await;
    let ready = api.get("/health/ready").await;
    assert_eq!(ready["backup"], json!({"lastGoodAt": null, "failing": false, "message": null}));
    becomes("a backup", async || counted(target.path()).len() == 1).await;
    becomes("word of it", async || api.get("/health/ready").await["backup"]["lastGoodAt"].is_string()).await;
    // The next one fails, which does not affect readiness.
    let away = target.path().with_extension("away");
    std::fs::rename(target.path(), &away).unwrap();
    becomes("a failure", async || api.metric("isobar_backup_failures_total").await >= 1.0).await;
    let ready = api.get("/health/ready").await;
    assert_eq!((&ready["status"], &ready["backup"]["failing"]), (&json!("up"), &json!(true)));
    assert!(ready["backup"]["lastGoodAt"].is_string(), "{ready}");
    std::fs::rename(away, target.path()).unwrap();
    assert_eq!(serving.stop(), Some(0));
}

// Holds: c12.backups
#[tokio::test]
async fn old_backups_are_removed_and_those_of_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target");
    std::fs::create_dir(&target).unwrap();
    let of = |name: &str, keep: &str| {
        Platform::to_folder(&folder.path().join(name), &target).set("ISOBAR_BACKUP__KEEP", keep)
    };
    let (one, other) = (of("one", "2"), of("other", "1"));
    furnished(&one).await;
    furnished(&other).await;
    let foreign =
        ["isobar-00000000-20200101T000000000Z.tar", "isobar-00000000-20200101T000000000Z.tar.json", "thesis.tar"];
    for name in foreign {
        std::fs::write(target.join(name), "years of work").unwrap();
    }
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(one.backs_up().await.split_whitespace().nth(2).unwrap().to_owned());
        // Two platforms write to one target.
        other.backs_up().await;
    }
    let left = names(&target);
    assert_eq!(left.len(), foreign.len() + 2 * 2 + 2, "{left:?}");
    for name in foreign {
        assert_eq!(std::fs::read_to_string(target.join(name)).unwrap(), "years of work");
    }
    assert!(!Path::new(&made[0]).exists() && Path::new(&made[1]).exists() && Path::new(&made[2]).exists());
}

// Holds: c12.backups
#[tokio::test]
async fn encrypted_backup_opens_with_its_own_key_alone() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target");
    std::fs::create_dir(&target).unwrap();
    let (right, recipient) = key_pair(folder.path(), "right");
    let (wrong, _) = key_pair(folder.path(), "wrong");
    let platform =
        Platform::to_folder(&folder.path().join("data"), &target).set("ISOBAR_BACKUP__ENCRYPT_TO", &recipient);
    furnished(&platform).await;
    platform.backs_up().await;
    let backup = target.join(&counted(&target)[0]).display().to_string();
    let elsewhere = Platform::new(&folder.path().join("elsewhere"), Vec::new());
    assert!(elsewhere.fails_to_restore(&backup, &[]).await.contains("is encrypted: name the file of an identity"));
    assert!(elsewhere.fails_to_restore(&backup, &["--identity", &wrong]).await.contains("was encrypted to others"));
    let missing = folder.path().join("missing").display().to_string();
    assert!(elsewhere.fails_to_restore(&backup, &["--identity", &missing]).await.contains("No such file"));
    assert!(elsewhere.restores(&backup, &["--identity", &right]).await.contains("Everything is sound."));
    // Existing backups stay.
    assert!(failure(&elsewhere.run(&["restore", &backup, "--identity", &right]).await).contains("is not empty"));
    assert_eq!(elsewhere.run(&["check"]).await.status.code(), Some(0));
}

#[tokio::test]
async fn damaged_archive_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target");
    std::fs::create_dir(&target).unwrap();
    let (identity, recipient) = key_pair(folder.path(), "identity");
    let plain = Platform::to_folder(&folder.path().join("data"), &target);
    furnished(&plain).await;
    plain.backs_up().await;
    let sealed = Platform::to_folder(&plain.data, &target)
        .set("ISOBAR_BACKUP__ENCRYPT_TO", &recipient)
        .set("ISOBAR_BACKUP__IDENTITY", &identity);
    sealed.backs_up().await;
    let elsewhere = Platform::new(&folder.path().join("elsewhere"), Vec::new());
    for name in counted(&target) {
        let whole = std::fs::read(target.join(&name)).unwrap();
        let bad = folder.path().join("bad").display().to_string();
        // A tar ends with padding, which may be missing.
        for length in [0, 1, 100, 600, whole.len() / 3, whole.len() / 2, whole.len() - 4096] {
            std::fs::write(&bad, &whole[..length]).unwrap();
            elsewhere.fails_to_restore(&bad, &["--identity", &identity]).await;
        }
        for place in [30, whole.len() / 4, whole.len() / 2, whole.len() * 3 / 4] {
            let mut altered = whole.clone();
            altered[place] ^= 1;
            std::fs::write(&bad, altered).unwrap();
            elsewhere.fails_to_restore(&bad, &["--identity", &identity]).await;
        }
        elsewhere.restores(&target.join(&name).display().to_string(), &["--identity", &identity]).await;
        std::fs::remove_dir_all(&elsewhere.data).unwrap();
    }
    let told = elsewhere.fails_to_restore(&folder.path().join("identity").display().to_string(), &[]).await;
    assert!(told.contains("is no backup") || told.contains("cannot be read"), "{told}");
}

#[tokio::test]
async fn unusable_target_is_described_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let platform = Platform::to_folder(&folder.path().join("data"), &folder.path().join("missing"));
    furnished(&platform).await;
    assert!(platform.fails_to_back_up().await.contains("is not there: mount what it lies on"));
    let within = Platform::to_folder(&platform.data, &platform.data.join("telemetry"));
    assert!(within.fails_to_back_up().await.contains("lies in the data folder"));
    let nowhere = Platform::new(&platform.data, Vec::new());
    assert!(nowhere.fails_to_back_up().await.contains("set backup.target"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bucket_that_refuses_is_described_in_a_sentence() {
    let (bucket, data) = (Bucket::open().await, tempfile::tempdir().unwrap());
    let of = || Platform::new(data.path(), bucket.settings());
    furnished(&of()).await;
    let wrong = of().set("ISOBAR_BACKUP__S3_SECRET_ACCESS_KEY", "another").fails_to_back_up().await;
    assert!(wrong.contains(&format!("the bucket {NAME} refuses the keys")), "{wrong}");
    let unknown = of().set("ISOBAR_BACKUP__S3_ACCESS_KEY_ID", "another").fails_to_back_up().await;
    assert!(unknown.contains("refuses the keys"), "{unknown}");
    assert!(counted(&bucket.objects()).is_empty());
    let elsewhere = Platform::new(&data.path().join("elsewhere"), bucket.settings());
    let told = elsewhere.fails_to_restore(&bucket.address_of("isobar/isobar-none.tar"), &[]).await;
    assert!(told.contains("holds no isobar/isobar-none.tar"), "{told}");
}

/// Writes e-mails that make a backup too long for one part of an upload.
fn write_letters(data: &Path) {
    std::fs::create_dir_all(data.join("mail")).unwrap();
    for name in ["one.eml", "two.eml", "three.eml"] {
        std::fs::write(data.join("mail").join(name), vec![b'a'; 6 << 20]).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_upload_leaves_the_backup_before() {
    let (bucket, data) = (Bucket::open().await, tempfile::tempdir().unwrap());
    let platform = Platform::new(data.path(), bucket.settings());
    furnished(&platform).await;
    platform.backs_up().await;
    let before = names(&bucket.objects());
    write_letters(data.path());
    bucket.is_cut_after(10 << 20);
    assert!(platform.fails_to_back_up().await.contains("does not do what it is asked for"));
    assert_eq!(names(&bucket.objects()), before);
    assert!(bucket.unfinished() > 0, "it broke in the middle of an upload");
    bucket.is_mended();
    platform.backs_up().await;
    assert_eq!((bucket.unfinished(), counted(&bucket.objects()).len()), (0, 2));
}

// Holds: c12.backups
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_that_was_killed_does_not_count_and_is_removed() {
    let (bucket, data) = (Bucket::open().await, tempfile::tempdir().unwrap());
    let platform = Platform::new(data.path(), bucket.settings());
    furnished(&platform).await;
    write_letters(data.path());
    bucket.is_held_after(10 << 20);
    let serving = platform.serve();
    let mut asking = platform.command(&["backup"]).spawn().unwrap();
    becomes("a part that was sent", async || bucket.is_held() && bucket.unfinished() > 0).await;
    serving.kill();
    assert!(!tokio::task::spawn_blocking(move || asking.wait().unwrap()).await.unwrap().success());
    assert!(counted(&bucket.objects()).is_empty());
    assert!(data.path().join("backups/copy").exists());
    bucket.is_mended();
    // With a schedule it is removed at the start.
    let serving = Platform::new(data.path(), bucket.settings()).set("ISOBAR_BACKUP__SCHEDULE", "0 0 1 1 *").serve();
    becomes("an end of what was left", async || {
        bucket.unfinished() == 0 && names(&data.path().join("backups")) == ["state.json"]
    })
    .await;
    // The leftover is removed, and the process that removes it ends soon after.
    becomes("a backup that counts", async || platform.run(&["backup"]).await.status.success()).await;
    assert_eq!(counted(&bucket.objects()).len(), 1);
    assert_eq!(serving.stop(), Some(0));
}

#[tokio::test]
async fn disk_that_fills_during_a_backup_leaves_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target");
    std::fs::create_dir(&target).unwrap();
    let platform = Platform::to_folder(&folder.path().join("data"), &target);
    furnished(&platform).await;
    platform.backs_up().await;
    let before = names(&target);
    write_letters(&platform.data);
    // Files are limited to 10 MiB: each e-mail fits, the archive does not.
    let command = platform.command(&["backup"]);
    let mut limited = Command::new("bash");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 10240; exec \"$0\" \"$@\""]).arg(command.get_program());
    limited.args(command.get_args()).envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let told = failure(&limited.output().unwrap());
    assert!(told.contains("File too large"), "{told}");
    assert_eq!(names(&target), before);
    platform.backs_up().await;
}

#[tokio::test]
async fn backup_that_comes_back_altered_does_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target");
    std::fs::create_dir(&target).unwrap();
    let platform = Platform::to_folder(&folder.path().join("data"), &target);
    furnished(&platform).await;
    platform.backs_up().await;
    let before = names(&target);
    write_letters(&platform.data);
    // Truncated as soon as it is complete: long before a restore has read its 18 MB.
    let (watched, known) = (target.clone(), before.clone());
    let cutting = tokio::task::spawn_blocking(move || {
        becomes_blocking("a new backup", || {
            let fresh = names(&watched).into_iter().find(|name| name.starts_with("isobar-") && !known.contains(name));
            fresh.is_some_and(|name| {
                File::options().write(true).open(watched.join(name)).unwrap().set_len(1 << 20).is_ok()
            })
        });
    });
    let told = platform.fails_to_back_up().await;
    cutting.await.unwrap();
    assert!(told.contains("came back from the target as something else than was sent"), "{told}");
    assert_eq!(names(&target), before);
}

#[tokio::test]
async fn backup_beside_postgres_holds_telemetry_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (target, database) = (folder.path().join("target"), support::OwnDatabase::new().await);
    std::fs::create_dir(&target).unwrap();
    let platform =
        Platform::to_folder(&folder.path().join("data"), &target).set("ISOBAR_STORES__REGISTRY", &database.address);
    furnished(&platform).await;
    let told = platform.backs_up().await;
    assert!(told.contains("Telemetry is sound. Restore PostgreSQL's dump"), "{told}");
    let backup = target.join(&counted(&target)[0]).display().to_string();
    let elsewhere = Platform::new(&folder.path().join("elsewhere"), Vec::new());
    assert!(elsewhere.fails_to_restore(&backup, &[]).await.contains("give its address as stores.registry"));
    let elsewhere = elsewhere.set("ISOBAR_STORES__REGISTRY", &database.address);
    assert!(elsewhere.restores(&backup, &[]).await.contains("Telemetry is sound."));
    assert_eq!(elsewhere.run(&["check"]).await.status.code(), Some(0));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_backup_during_one_is_refused() {
    let (bucket, data) = (Bucket::open().await, tempfile::tempdir().unwrap());
    let platform = Platform::new(data.path(), bucket.settings());
    furnished(&platform).await;
    bucket.is_held_after(1);
    let serving = platform.serve();
    let mut first = platform.command(&["backup"]).spawn().unwrap();
    becomes("a backup under way", async || bucket.is_held()).await;
    // The caller goes away, the backup continues, and nobody else may begin one.
    first.kill().unwrap();
    first.wait().unwrap();
    let told = failure(&platform.run(&["backup"]).await);
    assert!(told.contains("is under way already"), "{told}");
    bucket.is_mended();
    becomes("a turn", async || platform.run(&["backup"]).await.status.success()).await;
    assert_eq!(serving.stop(), Some(0));
}
