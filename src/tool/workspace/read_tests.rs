use super::*;
use crate::tool::workspace::OUTPUT_LIMIT;
use crate::tool::workspace::test_kit::{Kit, go, refusal, text};

fn read(kit: &Kit, path: &str) -> ToolReply {
    kit.workspace.read_file(&ReadFileArgs { path: path.into(), ..Default::default() }, &go)
}

fn lines(kit: &Kit, path: &str, offset: usize, limit: usize) -> ToolReply {
    let args = ReadFileArgs { path: path.into(), offset: Some(offset), limit: Some(limit) };
    kit.workspace.read_file(&args, &go)
}

fn numbers(n: usize) -> String {
    (1..=n).map(|n| format!("line {n}\n")).collect()
}

#[test]
fn lines_are_numbered() {
    let kit = Kit::with(&[("a/ü.txt", "one\r\n\r\ntwö\n")]);
    let reply = read(&kit, "a/ü.txt");
    assert_eq!(text(&reply), "1\tone\n2\t\n3\ttwö");
    assert_eq!(reply.for_person.as_deref(), Some("a/ü.txt, 3 lines"));
}

#[test]
fn a_last_line_counts_without_its_line_break() {
    let kit = Kit::with(&[("a", "one\ntwo"), ("empty", ""), ("break", "\n")]);
    assert_eq!(text(&read(&kit, "a")), "1\tone\n2\ttwo");
    assert_eq!(text(&read(&kit, "empty")), "[the file is empty]");
    assert_eq!(text(&read(&kit, "break")), "1\t");
}

#[test]
fn a_window_says_where_to_go_on() {
    let kit = Kit::with(&[("a", &numbers(1200))]);
    let reply = lines(&kit, "a", 1, 2);
    assert_eq!(text(&reply), "1\tline 1\n2\tline 2\n[lines 1-2 of 1200; ask for offset 3]");
    assert_eq!(reply.for_person.as_deref(), Some("a, lines 1-2 of 1200"));
    assert_eq!(text(&lines(&kit, "a", 600, 1)), "600\tline 600\n[lines 600-600 of 1200; ask for offset 601]");
    assert_eq!(
        text(&lines(&kit, "a", 1199, 50)),
        "1199\tline 1199\n1200\tline 1200\n[lines 1199-1200 of 1200]"
    );
    let whole = text(&read(&kit, "a"));
    assert_eq!(whole.lines().count(), READ_LINES + 1);
    assert_eq!(whole.lines().last().unwrap(), "[lines 1-1000 of 1200; ask for offset 1001]");
    assert_eq!(
        refusal(&lines(&kit, "a", 1201, 1)),
        ("offset_past_end", "a: it has 1200 lines; offset 1201 is past that")
    );
    assert_eq!(text(&lines(&kit, "a", 0, 0)), "1\tline 1\n[lines 1-1 of 1200; ask for offset 2]");
}

#[test]
fn the_reply_is_capped() {
    let kit = Kit::with(&[("a", &format!("{}\n", "x".repeat(1022)).repeat(100))]);
    let reply = text(&read(&kit, "a"));
    // A tab, the number, and the line break come on top.
    assert_eq!(reply.lines().last().unwrap(), "[lines 1-59 of 100; ask for offset 60]");
    assert!(reply.len() <= OUTPUT_LIMIT + 100);
}

#[test]
fn long_lines_are_cut_by_characters() {
    let long = "ü".repeat(1_000_000);
    let kit = Kit::with(&[("a", &format!("{long}\nend\n"))]);
    let cut = "ü".repeat(READ_LINE_CHARS - 1);
    assert_eq!(text(&read(&kit, "a")), format!("1\t{cut}…\n2\tend"));
}

#[test]
fn bytes_that_are_not_utf8_are_shown_and_said() {
    let kit = Kit::new();
    kit.file("a", b"gr\xfcn\nok\n");
    assert_eq!(
        text(&read(&kit, "a")),
        "1\tgr\u{fffd}n\n2\tok\n[not all of it is UTF-8: other bytes are shown as \u{fffd}]"
    );
    assert_eq!(text(&lines(&kit, "a", 2, 1)), "2\tok\n[lines 2-2 of 2]");
}

#[test]
fn byte_order_marks_are_understood() {
    let kit = Kit::new();
    kit.file("utf8", b"\xef\xbb\xbfone\n");
    kit.file("utf16", b"\xff\xfeo\0n\0e\0\r\0\n\0");
    assert_eq!(text(&read(&kit, "utf8")), "1\tone");
    assert_eq!(text(&read(&kit, "utf16")), "1\tone");
}

#[test]
fn binary_files_are_named_with_their_size() {
    let kit = Kit::new();
    kit.file("image.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    kit.sparse("big.bin", 2 << 30);
    assert_eq!(refusal(&read(&kit, "image.png")), ("binary_file", "image.png is a binary file of 16 B"));
    assert_eq!(refusal(&read(&kit, "big.bin")), ("binary_file", "big.bin is a binary file of 2.0 GiB"));
}

#[test]
fn of_a_huge_file_only_a_part_is_read() {
    let kit = Kit::with(&[("huge.log", &numbers(10_000))]);
    std::fs::OpenOptions::new().write(true).open(kit.path("huge.log")).unwrap().set_len(2 << 30).unwrap();
    let blocks = std::cell::Cell::new(0_u64);
    let count = || {
        blocks.set(blocks.get() + 1);
        false
    };
    let args = ReadFileArgs { path: "huge.log".into(), offset: Some(2), limit: Some(1) };
    let reply = kit.workspace.read_file(&args, &count);
    assert_eq!(
        text(&reply),
        "2\tline 2\n[lines 2-2 of more than 10000 (the file has 2.0 GiB); ask for offset 3]"
    );
    assert!(blocks.get() * BLOCK as u64 <= COUNT_LIMIT + 10 * BLOCK as u64, "{} blocks", blocks.get());
    // The line without an end is shown as far as any line is.
    let reply = text(&lines(&kit, "huge.log", 10_001, 5));
    let cut = "\u{fffd}".repeat(READ_LINE_CHARS - 1);
    assert_eq!(
        reply,
        format!(
            "10001\t{cut}…\n[lines 10001-10001 of more than 10001 (the file has 2.0 GiB); ask for offset 10002]\n\
             [not all of it is UTF-8: other bytes are shown as \u{fffd}]"
        )
    );
    assert_eq!(
        refusal(&lines(&kit, "huge.log", 20_000, 5)),
        ("offset_past_end", "huge.log: the first 256 MiB has 10000 lines; offset 20000 is past that")
    );
}

#[test]
fn directories_pipes_and_nothing_are_refused() {
    let kit = Kit::with(&[("src/a.rs", "")]);
    assert_eq!(refusal(&read(&kit, "src")), ("is_directory", "src is a directory; list_directory shows it"));
    assert_eq!(refusal(&read(&kit, "src/b.rs")).0, "not_found");
    #[cfg(unix)]
    {
        let _socket = std::os::unix::net::UnixListener::bind(kit.path("socket")).unwrap();
        assert_eq!(
            refusal(&read(&kit, "socket")),
            ("not_a_file", "socket is neither a file nor a directory (a pipe, a socket or a device)")
        );
    }
}

#[test]
fn it_stops_between_blocks() {
    let kit = Kit::with(&[("a", &numbers(100_000))]);
    let polls = std::cell::Cell::new(0);
    let stop = || polls.replace(polls.get() + 1) >= 3;
    let args = ReadFileArgs { path: "a".into(), ..Default::default() };
    assert_eq!(refusal(&kit.workspace.read_file(&args, &stop)).0, "cancelled");
    assert_eq!(polls.get(), 4);
}
