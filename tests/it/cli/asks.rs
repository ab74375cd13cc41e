//! Questions to the person at the terminal: the program on a terminal of its own, and a person who reads before they type.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};

use super::program::{PATIENCE, Ran, Running, Scripted};

/// A terminal from the side of the person, and what the side of a program is opened by.
fn pair() -> (File, CString) {
    let hands = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&hands).unwrap();
    unlockpt(&hands).unwrap();
    tcsetwinsize(&hands, Winsize { ws_col: 80, ws_row: 30, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let name = ptsname(&hands, Vec::new()).unwrap();
    (File::from(hands), name)
}

fn side(name: &CStr) -> Stdio {
    open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap().into()
}

/// A terminal, from the side of the person.
struct Terminal {
    hands: File,
    name: CString,
    drawn: Receiver<Vec<u8>>,
    /// What was seen and not looked at yet.
    seen: String,
}

impl Terminal {
    fn new() -> Self {
        let (hands, name) = pair();
        let mut eyes = hands.try_clone().unwrap();
        let (tell, drawn) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error is the end: nobody has the other side open any more.
            while let Ok(count @ 1..) = eyes.read(&mut bytes) {
                if tell.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { hands, name, drawn, seen: String::new() }
    }

    /// The side of a program.
    fn side(&self) -> Stdio {
        side(&self.name)
    }

    /// Starts a program on it, with its standard output elsewhere.
    fn start(&self, mut command: Command) -> Running {
        command.stdin(self.side()).stderr(self.side()).env("TERM", "xterm").env_remove("NO_COLOR");
        Running::new(command.stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Waits until that is drawn; what was drawn up to it.
    fn sees(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            match self.drawn.recv_timeout(PATIENCE) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(error) => panic!("{text:?} is not drawn ({error}), but\n{}", self.seen),
            }
        }
    }

    fn types(&mut self, text: &str) {
        self.hands.write_all(text.as_bytes()).unwrap();
    }
}

fn writes(path: &str) -> Value {
    json!({"name": "write_file", "arguments": {"path": path, "content": "written"}})
}

/// A root that writes and then has two children write; each says what came of it.
fn writers() -> Scripted {
    let child = json!([{"tool_calls": [writes("child.md")]}, {"text": "the child is done"}]);
    Scripted::new(json!([
        {"when": {"depth": 0}, "turns": [
            {"tool_calls": [writes("root.md")]},
            {"tool_calls": [{"name": "run_subtask", "arguments": {"description": "docs", "prompt": "docs"}}]},
            {"text": "All done."}]},
        {"turns": child},
    ]))
}

#[test]
fn whoever_sits_at_the_terminal_is_asked_and_the_answer_goes_to_that_call() {
    let script = writers();
    let mut terminal = Terminal::new();
    let running = terminal.start(script.command(&[]));
    let question = terminal.sees("> ");
    assert!(question.contains("go (agent) asks") && question.contains("root.md"), "{question}");
    terminal.types("y\n");
    let question = terminal.sees("docs (subtask) asks");
    assert!(question.contains("asked for write_file (Writing root.md) → yes, once"), "{question}");
    terminal.sees("> ");
    terminal.types("n not this one\n");
    terminal.sees("→ no: not this one");
    let ran = running.end();
    assert_eq!((ran.status, &*ran.stdout), (0, "All done.\n"));
    assert!(script.path().join("root.md").exists() && !script.path().join("child.md").exists());
}

#[test]
fn a_question_that_nobody_answers_is_over_when_its_time_is() {
    let script = writers();
    let mut terminal = Terminal::new();
    let running = terminal.start(script.command(&["--ask-timeout", "1ms"]));
    terminal.sees("→ nobody answered in time");
    let ran = running.end();
    assert_eq!((ran.status, &*ran.stdout), (0, "All done.\n"));
    assert!(!script.path().join("root.md").exists() && !script.path().join("child.md").exists());
}

#[test]
fn what_was_typed_before_a_question_does_not_answer_it() {
    let script = writers();
    let mut terminal = Terminal::new();
    terminal.types("y\nall\ny");
    let running = terminal.start(script.command(&[]));
    terminal.sees("> ");
    terminal.types("n\n");
    terminal.sees("→ no");
    terminal.sees("docs (subtask) asks");
    terminal.sees("> ");
    terminal.types("n\n");
    assert_eq!(running.end().status, 0);
    assert!(!script.path().join("root.md").exists() && !script.path().join("child.md").exists());
}

#[test]
fn what_is_typed_after_the_answer_stays_for_others() {
    let script = Scripted::new(json!([{"turns": [{"tool_calls": [writes("a.md")]}, {"text": "Done."}]}]));
    let mut terminal = Terminal::new();
    let running = terminal.start(script.command(&[]));
    let others = terminal.side();
    terminal.sees("> ");
    terminal.types("y\necho next\n");
    assert_eq!(running.end().status, 0);
    // The next program on this terminal.
    let mut next = Command::new("head");
    next.args(["-n", "1"]).stdin(others).stdout(Stdio::piped()).stderr(Stdio::piped());
    assert_eq!(Running::new(next.spawn().unwrap()).end().stdout, "echo next\n");
}

#[test]
fn a_signal_ends_the_question_and_the_run() {
    let script = writers();
    let mut terminal = Terminal::new();
    let running = terminal.start(script.command(&[]));
    terminal.sees("> ");
    terminal.types("half an ans");
    terminal.sees("half an ans");
    running.signal("INT");
    let Ran { status, .. } = running.end();
    assert_eq!(status, 130);
    let left = terminal.sees("cancelled by user\r\n");
    assert!(left.contains("⊘"), "{left}");
}

#[test]
fn a_terminal_that_is_gone_leaves_nobody_who_answers() {
    let script = writers();
    let ((mut hands, name), mut screen) = (pair(), Terminal::new());
    // Seen on another one than it is typed on, which is not that of the process: so its end is no signal.
    let mut command = script.command(&[]);
    command.stdin(side(&name)).stderr(screen.side()).env("TERM", "xterm").stdout(Stdio::piped());
    let running = Running::new(command.spawn().unwrap());
    screen.sees("> ");
    hands.write_all(b"half an ans").unwrap();
    drop(hands);
    let ran = running.end();
    assert_eq!((ran.status, &*ran.stdout), (0, "All done.\n"));
    assert!(!script.path().join("root.md").exists());
}

#[test]
fn nobody_is_asked_who_cannot_see_or_must_not_be_asked() {
    let script = writers();
    let terminal = Terminal::new();
    let denied = |ran: &Ran| {
        let answers = ran.of_kind("ask_answered");
        assert_eq!(answers.len(), 2, "{}", ran.stdout);
        assert!(answers.iter().all(|answer| answer["by"] == "nobody" && answer["decision"] == "deny"));
    };
    // No tree is drawn.
    denied(&terminal.start(script.command(&["--output", "jsonl"])).end().verified());
    // A tree is drawn, and there is nobody to type, or nobody who wants to be asked.
    let mut command = script.command(&[]);
    command.stdin(Stdio::null()).stderr(terminal.side()).env("TERM", "xterm").stdout(Stdio::piped());
    assert_eq!(Running::new(command.spawn().unwrap()).end().status, 0);
    assert_eq!(terminal.start(script.command(&["--no-ask"])).end().status, 0);
    assert!(!script.path().join("root.md").exists());
}
