//! The client commands: the real binary against a real server.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail with the test")]

#[path = "../program_support/mod.rs"]
mod program_support;
mod tail;

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use program_support::site::{ENVIRONMENT, PASSWORD};
use program_support::{Serving, isobar, text};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A server, and the home folder of a caller.
struct Desk {
    serving: Option<Serving>,
    address: String,
    home: TempDir,
    data: TempDir,
}

impl Desk {
    fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let serving = Serving::on(data.path(), &ENVIRONMENT);
        let address = serving.address.clone();
        Self { serving: Some(serving), address, home: tempfile::tempdir().unwrap(), data }
    }

    /// Restarts the server at the same address.
    fn restart(&mut self) {
        assert_eq!(self.serving.take().unwrap().stop(), Some(0));
        let mut command = isobar(&["serve", "--listen", &self.address, "--log", "warn", "--data"]);
        command.arg(self.data.path()).envs(ENVIRONMENT);
        self.serving = Some(Serving::of(command));
    }

    fn signed_in() -> Self {
        let desk = Self::new();
        assert_code(&desk.login(PASSWORD), 0);
        desk
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn command(&self, words: &[&str]) -> Command {
        client(self.home.path(), words)
    }

    fn runs(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Signs in with a umask that forbids nothing.
    fn login(&self, password: &str) -> Output {
        let login = self.command(&["login", "--user", "admin", "--url", &self.url()]);
        let mut open = Command::new("sh");
        open.args(["-c", "umask 0; exec \"$0\" \"$@\""]).arg(login.get_program()).args(login.get_args());
        open.envs(login.get_envs().filter_map(|(name, value)| Some((name, value?))));
        fed(open, password)
    }

    fn api(&self, method: &str, path: &str, body: &Value) -> Value {
        let output = self.runs(&["api", method, path, "--body", &body.to_string()]);
        assert_code(&output, 0);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn file(&self, name: &str, content: &str) -> String {
        let path = self.home.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn project(&self) -> String {
        let made = self.api("POST", "/v2/projects", &json!({"name": "cold"}));
        made["id"].as_str().unwrap().to_owned()
    }
}

fn client(home: &Path, words: &[&str]) -> Command {
    let mut command = isobar(words);
    command.env("XDG_CONFIG_HOME", home);
    command
}

fn fed(mut command: Command, input: &str) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{input}").unwrap();
    child.wait_with_output().unwrap()
}

#[track_caller]
fn assert_code(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
}

#[track_caller]
fn assert_fails(output: &Output, code: i32, told: &str) {
    assert_code(output, code);
    let error = text(&output.stderr);
    assert!(error.contains(told), "{error}");
}

// Holds: c16.login, c16.url
#[test]
fn login_is_stored_for_its_owner_and_ended_by_logout() {
    let desk = Desk::new();
    assert_fails(&desk.runs(&["api", "GET", "/v2/auth/user"]), 4, "run isobar login");
    assert_fails(&desk.login("wrong one"), 4, "refuses the credentials");
    assert_code(&desk.login(PASSWORD), 0);
    let file = desk.home.path().join("isobar/login.json");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    // A folder that others may write to is theirs no longer.
    std::fs::set_permissions(file.parent().unwrap(), Permissions::from_mode(0o777)).unwrap();
    assert_code(&desk.login(PASSWORD), 0);
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    assert!(text(&desk.runs(&["api", "GET", "/v2/auth/user"]).stdout).contains("\"admin\""));

    // A refused access token is renewed, and the new one is stored.
    let mut stored: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    stored["credential"]["session"]["accessToken"] = json!("ended");
    std::fs::write(&file, stored.to_string()).unwrap();
    assert_code(&desk.runs(&["api", "GET", "/v2/auth/user"]), 0);
    assert!(!std::fs::read_to_string(&file).unwrap().contains("\"ended\""));
    stored = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();

    // Stored credentials are sent to no other server.
    let elsewhere = desk.runs(&["api", "GET", "/v2/auth/user", "--url", "http://127.0.0.1:1"]);
    assert_fails(&elsewhere, 4, "no login at http://127.0.0.1:1");
    assert_code(&desk.runs(&["logout"]), 0);
    assert!(!file.exists());
    stored["credential"]["session"]["accessToken"] = json!("ended");
    std::fs::write(&file, stored.to_string()).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_fails(&desk.runs(&["api", "GET", "/v2/auth/user"]), 4, "can be read by others");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_fails(&desk.runs(&["api", "GET", "/v2/auth/user"]), 4, "the session has ended");
}

// Holds: c16.login, c16.url
#[test]
fn api_key_of_the_environment_works_until_it_is_revoked() {
    let desk = Desk::signed_in();
    let own = desk.runs(&["api", "GET", "/v2/auth/user"]);
    let own: Value = serde_json::from_slice(&own.stdout).unwrap();
    let keys = format!("/v2/users/{}/apiKeys", own["id"].as_str().unwrap());
    let made = desk.api("POST", &keys, &json!({"name": "ci"}));
    let secret =
        ["key", "token", "apiKey"].iter().find_map(|name| made[name].as_str()).unwrap_or_else(|| panic!("{made}"));
    let by_key = || {
        let mut command = desk.command(&["api", "GET", "/v2/projects", "--json"]);
        command.env("ISOBAR_API_KEY", secret).env("ISOBAR_URL", desk.url()).output().unwrap()
    };
    assert_code(&by_key(), 0);
    assert_code(&desk.runs(&["api", "DELETE", &format!("{keys}/{}", made["id"].as_str().unwrap())]), 0);
    assert_fails(&by_key(), 4, "refuses the credentials");
}

// Holds: c16.api
#[test]
fn wrong_addresses_and_calls_are_described_in_a_sentence() {
    let desk = Desk::signed_in();
    let nobody = fed(desk.command(&["login", "--user", "admin", "--url", "http://127.0.0.1:1"]), PASSWORD);
    assert_fails(&nobody, 3, "cannot connect to http://127.0.0.1:1");
    assert_fails(&desk.runs(&["api", "GET", "v2/projects"]), 1, "must begin with /");
    let refused = desk.runs(&["api", "POST", "/v2/projects", "--body", "{}"]);
    assert_fails(&refused, 5, "name: ");
    assert_fails(&desk.runs(&["api", "POST", "/v2/projects", "--file", "/nowhere"]), 1, "cannot read /nowhere");
    let page = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", page.local_addr().unwrap());
    let proxy = std::thread::spawn(move || {
        let (mut stream, _) = page.accept().unwrap();
        std::io::Read::read(&mut stream, &mut [0; 4096]).unwrap();
        let head = "HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n";
        write!(stream, "{head}<html>").unwrap();
    });
    assert_fails(&fed(desk.command(&["login", "--user", "a", "--url", &url]), "x"), 3, "not from Isobar");
    proxy.join().unwrap();
}

/// Returns a design that stores readings.
fn storing(store: &str) -> String {
    json!({"name": "cold", "planes": {"cloud": {"elements": {
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [{"element": store, "ability": "store"}]}},
        store: {"type": "storage"},
    }}}})
    .to_string()
}

// Holds: c16.design
#[test]
fn design_changed_meanwhile_is_not_overwritten() {
    let desk = Desk::signed_in();
    let project = desk.project();
    let design = |words: &[&str]| {
        let mut command = desk.command(&["design"]);
        command.args(words).env("ISOBAR_PROJECT", &project).output().unwrap()
    };
    let base = desk.file("base.json", "");
    assert_code(&design(&["get", "--output", &base]), 0);
    assert_code(&design(&["diff", &base]), 0);
    let (mine, other) = (desk.file("mine.json", &storing("mine")), desk.file("other.json", &storing("other")));
    assert!(text(&design(&["diff", &mine]).stdout).contains("+"));
    assert_code(&design(&["diff", &mine]), 1);
    assert_code(&design(&["apply", &mine]), 2);
    assert_code(&design(&["apply", &other, "--overwrite"]), 0);
    assert_fails(&design(&["apply", &mine, "--base", &base]), 6, "changed meanwhile");
    assert_fails(&design(&["apply", &mine, "--if-match", "\"1-0\""]), 6, "somebody else was faster");
    let now = desk.file("now.json", &text(&design(&["get"]).stdout));
    assert_code(&design(&["apply", &mine, "--base", &now]), 0);
    assert!(text(&design(&["get"]).stdout).contains("\"mine\""));
    let broken = desk.file("broken.json", "{\n  \"name\": \"x\",\n  oops");
    assert_fails(&design(&["apply", &broken, "--overwrite"]), 1, "line 3");
}

// Holds: c16.design
#[test]
fn design_test_fails_with_a_diff_when_a_case_does() {
    let desk = Desk::signed_in();
    let project = desk.project();
    let design = desk.file("design.json", &storing("log"));
    let test = |cases: &str, more: &[&str]| {
        let file = desk.file("cases.toml", cases);
        let words = ["design", "test", &file, "--project", &project, "--design", &design];
        desk.command(&words).args(more).output().unwrap()
    };
    let case = |temp: &str| {
        format!(
            "[[case]]\nname = \"stored\"\nelement = \"reading\"\npayload = {{ temp = 9.1 }}\n\
             effects = [{{ type = \"store\", element = \"log\", value = {{ temp = {temp} }} }}]\n"
        )
    };
    let passed = test(&case("9.1"), &[]);
    assert_code(&passed, 0);
    assert!(text(&passed.stdout).ends_with("1 passed, 0 failed\n"));
    let failed = test(&case("9.2"), &[]);
    assert_code(&failed, 1);
    let told = text(&failed.stdout);
    assert!(told.contains("FAIL  stored") && told.contains("9.2") && told.contains("+"), "{told}");
    let failed: Value = serde_json::from_slice(&test(&case("9.2"), &["--json"]).stdout).unwrap();
    assert_eq!(failed["cases"][0]["passed"], json!(false));
    assert_fails(&test("[[case]]\nname = 7\n", &[]), 1, "line 2");
}

impl Desk {
    /// Creates a device in a project that stores its readings.
    fn device(&self) -> String {
        let project = self.project();
        let file = self.file("design.json", &storing("log"));
        assert_code(&self.runs(&["design", "apply", "--project", &project, "--overwrite", &file]), 0);
        let made = self.api("POST", "/v2/devices", &json!({"name": "fridge", "projectUuid": project}));
        made["id"].as_str().unwrap().to_owned()
    }

    fn posts(&self, device: &str, payload: &str) -> String {
        let output = self.runs(&["events", "post", "--device", device, "--element", "reading", "--body", payload]);
        assert_code(&output, 0);
        text(&output.stdout).trim().to_owned()
    }
}

/// A command of the desk on a terminal of its own, which `script` makes.
fn on_terminal(desk: &Desk, words: &[&str]) -> Command {
    let command = desk.command(words);
    let quoted = |word: &std::ffi::OsStr| format!("'{}'", word.to_str().unwrap().replace('\'', r"'\''"));
    let line: Vec<String> = std::iter::once(command.get_program()).chain(command.get_args()).map(quoted).collect();
    let mut script = Command::new("script");
    script.args(["--quiet", "--flush", "--return", "--command", &line.join(" "), "/dev/null"]).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        value.map(|value| script.env(name, value));
    }
    script
}

#[test]
fn terminal_shows_payloads_without_their_commands() {
    let desk = Desk::signed_in();
    let device = desk.device();
    let first = desk.posts(&device, "1");
    let payload = json!({"a\u{9b}31m": "\u{7f}\u{85}\u{61c}\u{200f}\u{202e}\u{2067} ü"});
    desk.posts(&device, &payload.to_string());
    let path = format!("/v2/devices/{device}/events?limit=1");
    let is_shown = |shown: &str| {
        let escaped = r#"{"a\u009b31m":"\u007f\u0085\u061c\u200f\u202e\u2067 ü"}"#;
        assert!(shown.replace("\": \"", "\":\"").contains(&escaped[1..escaped.len() - 1]), "{shown:?}");
        assert!(!shown.chars().any(|c| isobar_model::quote::is_command(c) && !"\r\n".contains(c)), "{shown:?}");
    };
    let listed = on_terminal(&desk, &["api", "GET", &path]).output().unwrap();
    assert_code(&listed, 0);
    is_shown(&text(&listed.stdout));
    let mut tail = on_terminal(&desk, &["events", "tail", "--after", &first]).stdout(Stdio::piped()).spawn().unwrap();
    is_shown(&BufReader::new(tail.stdout.take().unwrap()).lines().next().unwrap().unwrap());
    tail.kill().unwrap();
    tail.wait().unwrap();

    // To a pipe it goes as it is.
    assert!(text(&desk.runs(&["api", "GET", &path]).stdout).contains("a\u{9b}31m"));
}

#[test]
fn long_refusal_of_a_server_is_cut() {
    let desk = Desk::signed_in();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
        let words = "\\u001b[2J words".repeat(1 << 16);
        let body = format!(r#"{{"message":"{words}","errors":[{{"field":"{words}","message":"{words}"}}]}}"#);
        let length = body.len();
        let head =
            format!("HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all((head + &body).as_bytes()).unwrap();
    });
    let mut command = desk.command(&["devices", "list", "--url", &format!("http://{address}")]);
    let refused = command.env("ISOBAR_API_KEY", "key").output().unwrap();
    assert_fails(&refused, 5, "[2J words");
    let told = text(&refused.stderr);
    assert!(told.chars().count() < 800 && !told.contains('\u{1b}'), "{told:?}");
}

// Holds: c16.events
#[test]
fn wrong_event_is_refused_with_its_fault() {
    let desk = Desk::signed_in();
    let device = desk.device();
    let post = |more: &[&str]| {
        let mut command = desk.command(&["events", "post", "--device", &device, "--element"]);
        command.args(more).output().unwrap()
    };
    assert_fails(&post(&["reading", "--body", "{oops"]), 5, "(400)");
    assert_fails(&post(&["a & b", "--body", "1"]), 5, "(4");
    assert_fails(&post(&["reading"]), 2, "--body");
    let keyed = ["reading", "--body", "1", "--idempotency-key", "4711"];
    assert_eq!(post(&keyed).stdout, post(&keyed).stdout);
}

/// Parses the output of an import, a line per created device.
fn created(output: &[u8]) -> Vec<Value> {
    text(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

// Holds: c16.devices
#[test]
fn import_makes_each_device_once() {
    let desk = Desk::signed_in();
    let project = desk.project();
    let file = desk.file("fleet.csv", "name,meta.serial,meta.floor\n'=cold 1,0012,3\n\"a, \"\"b\"\"\",,\n");
    let import = |more: &[&str]| {
        let mut command = desk.command(&["devices", "import", &file, "--project", &project]);
        command.args(more).output().unwrap()
    };
    let dry = import(&["--dry-run"]);
    assert_code(&dry, 0);
    assert_eq!(
        (dry.stdout.len(), text(&dry.stderr)),
        (0, "isobar: 2 could be made, 0 there already, 0 refused\n".to_owned())
    );
    let tokens = desk.home.path().join("tokens.jsonl");
    assert_code(&import(&["--output", tokens.to_str().unwrap()]), 0);
    assert_eq!(std::fs::metadata(&tokens).unwrap().permissions().mode() & 0o777, 0o600);
    let made = created(&std::fs::read(&tokens).unwrap());
    assert_eq!(
        (&made[0]["line"], &made[0]["name"], &made[1]["name"]),
        (&json!(2), &json!("=cold 1"), &json!("a, \"b\""))
    );
    assert!(made[0]["token"].as_str().unwrap().len() > 16);

    desk.file("fleet.csv", "name,meta.serial\n\"a, \"\"b\"\"\",\nnew,\n'=cold 1,\n");
    let again = import(&[]);
    assert_code(&again, 0);
    assert_eq!(text(&again.stderr), "isobar: 1 made, 2 there already, 0 refused\n");
    assert_eq!(created(&again.stdout)[0]["line"], json!(3));
    let listed = desk.runs(&["devices", "list", "--filter", "meta.serial[eq]=nothing"]);
    assert_eq!(text(&listed.stdout), "");
    let listed = desk.runs(&["devices", "list", "--sort", "-name", "--filter", "meta.floor[eq]=3", "--json"]);
    let device: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(device["meta"], json!({"serial": "0012", "floor": 3}));
}

#[test]
fn name_with_a_terminals_commands_is_shown_without_them() {
    let desk = Desk::signed_in();
    let project = desk.project();
    desk.api("POST", "/v2/devices", &json!({"name": "cold\u{1b}]0;owned\u{7}\nroom", "projectUuid": project}));
    let listed = text(&desk.runs(&["devices", "list"]).stdout);
    assert!(listed.ends_with("cold\u{fffd}]0;owned\u{fffd} room\n"), "{listed:?}");
}

// Holds: c16.devices
#[test]
fn export_can_be_imported_into_another_project() {
    let desk = Desk::signed_in();
    let (from, to) = (desk.project(), desk.project());
    let lines: String =
        (0..250).map(|n| format!("{{\"name\": \"fridge {n}\", \"meta\": {{\"n\": {n}.50}}}}\n")).collect();
    let file = desk.file("fleet.jsonl", &lines);
    assert_code(&desk.runs(&["devices", "import", &file, "--project", &from]), 0);
    let exported = desk.home.path().join("out.csv");
    let exported = exported.to_str().unwrap();
    let columns = ["--columns", "name,createdAt,meta", "--sort", "createdAt", "--output", exported];
    let mut command = desk.command(&["devices", "export"]);
    assert_code(&command.args(columns).output().unwrap(), 0);
    assert_eq!(std::fs::read_to_string(exported).unwrap().lines().count(), 251);
    let imported = desk.runs(&["devices", "import", exported, "--project", &to]);
    assert_code(&imported, 0);
    assert_eq!(created(&imported.stdout).len(), 250);
    let filter = format!("projectUuid[eq]={to}");
    let all = desk.runs(&["devices", "export", "--format", "jsonl", "--filter", &filter]);
    assert_code(&all, 0);
    let all = text(&all.stdout);
    assert_eq!((all.lines().count(), all.matches(".50}").count()), (250, 250));
}

// Holds: c16.devices
#[test]
fn import_with_faults_names_their_lines_and_makes_nothing() {
    let desk = Desk::signed_in();
    let project = desk.project();
    let import = |name: &str, content: &str| {
        let file = desk.file(name, content);
        desk.runs(&["devices", "import", &file, "--project", &project])
    };
    assert_fails(&import("a.csv", "name,colour\nx,red\n"), 1, "a.csv:1: there is no column \"colour\"");
    assert_fails(&import("a.csv", "name,meta\nx,\ny,{oops\n"), 1, "a.csv:3: meta: is no JSON");
    assert_fails(&import("a.csv", "name\nx\ny\nx\n"), 1, "a.csv:4: names the same device as line 2");
    assert_fails(&import("a.csv", "name,projectUuid\nx,7\n"), 1, "a.csv:2: projectUuid: is no id");
    assert_fails(&import("a.jsonl", "{\"name\": \"x\"}\n{}\n"), 1, "a.jsonl:2: name: is required");
    assert_fails(&desk.runs(&["devices", "import", "/nowhere"]), 1, "cannot read /nowhere");
    assert_eq!(text(&desk.runs(&["devices", "list"]).stdout), "");
    // Faults that only the server finds are reported by line too, and the other devices are created.
    let long = "x".repeat(81);
    let partly = import("a.csv", &format!("name\nx\n{long}\n"));
    assert_fails(&partly, 1, "a.csv:3: name: must be 1 to 80 characters long");
    assert_eq!(created(&partly.stdout).len(), 1);
    assert_fails(&desk.runs(&["devices", "list", "--filter", "name"]), 2, "must be like");
    assert_fails(&desk.runs(&["devices", "list", "--limit", "0"]), 5, "limit");
    assert_fails(&desk.runs(&["devices", "export", "--columns", "colour"]), 5, "colour");
}
