//! `isobar events tail`.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use super::{Desk, assert_fails};

/// A running tail with its lines.
struct Tailing {
    child: Child,
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl Tailing {
    fn of(desk: &Desk, words: &[&str]) -> Self {
        let mut command = desk.command(&["events", "tail"]);
        command.args(words);
        Self::started(command)
    }

    fn started(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = Some(BufReader::new(child.stdout.take().unwrap()).lines());
        Self { child, lines }
    }

    fn next(&mut self) -> String {
        self.lines.as_mut().unwrap().next().unwrap().unwrap()
    }

    /// Sends Ctrl+C; returns the exit code and standard error.
    fn interrupted(self) -> (Option<i32>, String) {
        rustix::process::kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.ended()
    }

    fn ended(mut self) -> (Option<i32>, String) {
        let told = std::io::read_to_string(self.child.stderr.take().unwrap()).unwrap();
        (self.child.wait().unwrap().code(), told)
    }
}

impl Drop for Tailing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// Holds: c16.events
#[test]
fn tail_continues_after_the_given_event() {
    let desk = Desk::signed_in();
    let device = desk.device();
    let (first, second) = (desk.posts(&device, r#"{"temp": 1.10}"#), desk.posts(&device, r#"{"temp": 2}"#));
    let mut tail = Tailing::of(&desk, &["--device", &device, "--after", &first]);
    let line = tail.next();
    assert!(line.ends_with(&format!(" deviceEvent {device} reading {{\"temp\": 2}}")), "{line}");
    let third = desk.posts(&device, "3");
    assert!(tail.next().ends_with(" reading 3"));
    assert_eq!(tail.interrupted(), (Some(0), format!("isobar: go on with --after {third}\n")));

    let mut lines = Tailing::of(&desk, &["--after", &second, "--json"]);
    let event: Value = serde_json::from_str(&lines.next()).unwrap();
    assert_eq!((&event["event"], &event["data"]["id"]), (&json!("deviceEvent"), &json!(third)));
    assert_eq!(lines.interrupted().0, Some(0));
    let unknown = desk.runs(&["events", "tail", "--after", "00000000-0000-7000-8000-000000000000"]);
    assert_fails(&unknown, 5, "header.Last-Event-ID");
}

// Holds: c16.events
#[test]
fn tail_survives_a_restart_of_the_server() {
    let mut desk = Desk::signed_in();
    let device = desk.device();
    let first = desk.posts(&device, "1");
    let second = desk.posts(&device, "2");
    let mut tail = Tailing::of(&desk, &["--device", &device, "--after", &first]);
    assert!(tail.next().ends_with(" reading 2"));
    desk.restart();
    desk.posts(&device, "3");
    assert!(tail.next().ends_with(" reading 3"));
    let (code, told) = tail.interrupted();
    assert_eq!(code, Some(0));
    assert!(told.contains("opening it again in") && !told.contains(&second), "{told}");
}

/// Forwards connections to a server; the first one is cut once the stream has named its place, and the next ones wait
/// until `resume` is dropped.
fn cutting_proxy(server: String) -> (String, Receiver<()>, Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let ((cut, is_cut), (resume, resumes)) = (mpsc::channel(), mpsc::channel::<()>());
    std::thread::spawn(move || {
        let mut cut = Some(cut);
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            let Some(cut) = cut.take() else {
                let _ = resumes.recv();
                let _ = std::io::copy(&mut &server, &mut &client);
                continue;
            };
            for line in BufReader::new(&server).split(b'\n') {
                let line = [&line.unwrap()[..], b"\n"].concat();
                (&client).write_all(&line).unwrap();
                if line.starts_with(b"id: ") {
                    (&client).write_all(b"\n").unwrap();
                    break;
                }
            }
            client.shutdown(Shutdown::Both).unwrap();
            drop(cut);
        }
    });
    (address, is_cut, resume)
}

// Holds: c21.streams
#[test]
fn tail_cut_before_its_first_event_misses_nothing() {
    let desk = Desk::signed_in();
    let device = desk.device();
    desk.posts(&device, "1");
    let me: Value = serde_json::from_slice(&desk.runs(&["api", "GET", "/v2/auth/user"]).stdout).unwrap();
    let keys = format!("/v2/users/{}/apiKeys", me["id"].as_str().unwrap());
    let key = desk.api("POST", &keys, &json!({"name": "tail"}));
    let (url, is_cut, resume) = cutting_proxy(desk.address.clone());
    let mut command = desk.command(&["events", "tail", "--url", &url]);
    command.env("ISOBAR_API_KEY", key["key"].as_str().unwrap());
    let mut tail = Tailing::started(command);
    is_cut.recv().unwrap_err();
    desk.posts(&device, "2");
    drop(resume);
    assert!(tail.next().ends_with(" reading 2"));
}

#[test]
fn tail_into_a_closed_pipe_ends_quietly() {
    let desk = Desk::signed_in();
    let device = desk.device();
    let first = desk.posts(&device, "1");
    desk.posts(&device, "2");
    let mut tail = Tailing::of(&desk, &["--after", &first]);
    tail.next();
    tail.lines = None;
    desk.posts(&device, "3");
    assert_eq!(tail.ended(), (Some(0), String::new()));
}
