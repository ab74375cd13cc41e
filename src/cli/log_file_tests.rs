//! Every kind of bad line, and files that are no logs.

use super::super::sample::{two_children, whole};
use super::*;

fn read(bytes: &[u8]) -> Vec<LogLine> {
    // A tiny buffer: lines arrive in pieces.
    LogFile::new(BufReader::with_capacity(7, bytes)).map(|line| line.unwrap()).collect()
}

fn problems(bytes: &[u8]) -> Vec<String> {
    read(bytes)
        .into_iter()
        .filter_map(|line| match line {
            LogLine::Problem(problem) => Some(format!("{:?}: {problem}", problem.kind)),
            LogLine::Message(_) => None,
        })
        .collect()
}

#[test]
fn a_whole_log_has_no_problem_with_either_line_end() {
    let log = whole();
    assert_eq!(problems(log.log().as_bytes()), [""; 0]);
    assert_eq!(problems(log.log().trim_end().as_bytes()), [""; 0]);
    let foreign = format!("\u{feff}{}", log.log().replace('\n', "\r\n"));
    let messages: Vec<_> = read(foreign.as_bytes())
        .into_iter()
        .map(|line| match line {
            LogLine::Message(message) => message,
            LogLine::Problem(problem) => panic!("{problem}"),
        })
        .collect();
    assert_eq!(messages, log.messages);
}

#[test]
fn each_bad_line_is_named_and_the_others_are_kept() {
    let log = two_children().log();
    let mut lines = log.lines();
    let (first, second) = (lines.next().unwrap(), lines.next().unwrap());
    let other = second.replace("\"root_run_id\":\"root\"", "\"root_run_id\":\"other\"");
    let mut bytes = Vec::new();
    for line in [first, "", "not json", "[1,2]", r#"{"type":"chunk","content":"x"}"#, &other, second] {
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
    }
    bytes.extend_from_slice(b"{\"type\":\"\xff\xfe\"}\n");
    bytes.extend_from_slice(second.get(..40).unwrap().as_bytes());
    assert_eq!(
        problems(&bytes),
        [
            r#"Empty: line 2: empty"#,
            r#"NotAMessage: line 3: not a message: expected ident at column 2 (it begins: not json)"#,
            r#"NotAMessage: line 4: not a message: invalid type: sequence, expected a JSON object at column 0 (it begins: [1,2])"#,
            r#"Unstamped: line 5: a chunk message without an envelope (it begins: {"type":"chunk","content":"x"})"#,
            r#"Foreign: line 6: a message of another root, other (it begins: {"type":"chunk","seq":1,"run_seq":1,"time":"2026-01-01T00:00)"#,
            r#"Encoding: line 8: invalid UTF-8 at byte 9 (it begins: {"type":"��"})"#,
            r#"Cut: line 9: cut off in the middle, and the log ends here (it begins: {"type":"chunk","seq":1,"run_seq":1,"tim)"#,
        ]
    );
    assert_eq!(read(&bytes).len(), 9);
}

#[test]
fn a_line_without_end_is_not_held() {
    let log = two_children().log();
    let mut bytes = vec![b'x'; 5000];
    bytes.push(b'\n');
    bytes.extend_from_slice(log.as_bytes());
    bytes.extend_from_slice(&[b'y'; 5000]);
    let mut file = LogFile::new(BufReader::new(&*bytes));
    file.cap = 1000;
    let lines: Vec<_> = file.map(|line| line.unwrap()).collect();
    let long = |line: &LogLine| match line {
        LogLine::Problem(problem) => problem.kind == ProblemKind::TooLong && problem.start.len() == QUOTED,
        LogLine::Message(_) => false,
    };
    assert!(long(lines.first().unwrap()) && long(lines.last().unwrap()));
    assert_eq!(lines.len(), log.lines().count() + 2);
}

#[test]
fn a_quote_never_cuts_a_character() {
    let line = "日".repeat(100) + "\n";
    let LogLine::Problem(problem) = read(line.as_bytes()).pop().unwrap() else { panic!() };
    assert_eq!(problem.start, "日".repeat(20));
}

#[test]
fn what_cannot_be_opened_is_named() {
    let missing = open_log(Path::new("no/such/file")).map(drop).unwrap_err();
    assert!(missing.to_string().starts_with("cannot read no/such/file: "), "{missing}");
    let directory = open_log(Path::new("src")).map(drop).unwrap_err();
    assert!(directory.to_string().contains("a directory, not a log"), "{directory}");
}

#[test]
fn an_error_of_the_reader_ends_the_log() {
    struct Broken;
    impl io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::ConnectionReset.into())
        }
    }
    let mut file = LogFile::new(BufReader::new(Broken));
    assert!(matches!(file.next(), Some(Err(_))));
    assert!(file.next().is_none());
}
