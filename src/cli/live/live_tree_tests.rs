//! The live tree on a terminal: a small emulator of one, which knows what the backend writes and nothing else.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use ratatui::buffer::CellWidth;
use ratatui::text::Span;

use super::super::super::sample::{Sample, at, two_children, whole};
use super::*;

/// A screen with its scrollback. Reflows when it becomes narrower, as most terminals do.
#[derive(Default)]
struct Screen {
    rows: Vec<Vec<String>>,
    row: usize,
    column: usize,
    /// The first row that is not scrollback.
    top: usize,
    width: usize,
    height: usize,
    wrap: bool,
}

impl Screen {
    fn feed(&mut self, bytes: &str) {
        let mut rest = bytes;
        while let Some(c) = rest.chars().next() {
            if let Some(sequence) = rest.strip_prefix("\x1b[") {
                let end = sequence.find(|c: char| c.is_ascii_alphabetic()).unwrap();
                self.control(&sequence[..end], &sequence[end..=end]);
                rest = &sequence[end + 1..];
                continue;
            }
            if c == '\r' || c == '\n' {
                if c == '\n' {
                    self.row += 1;
                    self.top = self.top.max((self.row + 1).saturating_sub(self.height));
                }
                self.column = 0;
                rest = &rest[1..];
                continue;
            }
            let span = Span::raw(rest);
            let grapheme =
                span.styled_graphemes(ratatui::style::Style::default()).next().unwrap().symbol.to_owned();
            self.put(&grapheme);
            rest = &rest[grapheme.len()..];
        }
    }

    fn control(&mut self, argument: &str, command: &str) {
        let number = || argument.parse::<usize>().unwrap_or(1);
        match (argument, command) {
            (_, "A") => self.row = self.row.saturating_sub(number()).max(self.top),
            (_, "G") => self.column = number() - 1,
            (_, "B") => self.row = (self.row + number()).min(self.top + self.height - 1),
            ("2", "K") => {
                if let Some(row) = self.rows.get_mut(self.row) {
                    row.clear();
                }
            }
            ("" | "0", "J") => {
                assert!(self.row > self.top, "the whole screen would be kept in the scrollback");
                self.rows.truncate(self.row + 1);
                if let Some(row) = self.rows.get_mut(self.row) {
                    row.truncate(self.column);
                }
            }
            ("?7", "l") => self.wrap = false,
            ("?7", "h") => self.wrap = true,
            ("?2026", "h" | "l") | (_, "m") => {}
            other => panic!("the backend wrote {other:?}"),
        }
    }

    fn put(&mut self, grapheme: &str) {
        let width = usize::from(grapheme.cell_width());
        if self.wrap && self.column + width > self.width {
            self.feed("\r\n");
        }
        if self.rows.len() <= self.row {
            self.rows.resize(self.row + 1, Vec::new());
        }
        let row = &mut self.rows[self.row];
        if row.len() < self.column + width {
            row.resize(self.column + width, " ".into());
        }
        row[self.column] = grapheme.into();
        for cell in row.iter_mut().skip(self.column + 1).take(width - 1) {
            cell.clear();
        }
        self.column += width;
        assert!(self.column <= self.width, "a row spills over");
    }

    fn resize(&mut self, width: usize, height: usize) {
        let (mut rows, mut cursor) = (Vec::new(), 0);
        // What is blank below the cursor does not count.
        while self.rows.len() > self.row && self.rows.last().is_some_and(Vec::is_empty) {
            self.rows.pop();
        }
        for (at, row) in self.rows.iter().enumerate() {
            if at == self.row {
                cursor = rows.len();
            }
            let mut pieces: Vec<_> = row.chunks(width).map(<[_]>::to_vec).collect();
            if pieces.is_empty() {
                pieces.push(Vec::new());
            }
            rows.append(&mut pieces);
        }
        if self.row >= self.rows.len() {
            cursor = rows.len() + self.row - self.rows.len();
        }
        self.top = rows.len().max(cursor + 1).saturating_sub(height);
        (self.rows, self.row, self.width, self.height) = (rows, cursor, width, height);
    }

    fn text(&self) -> String {
        let text: String = self.rows.iter().map(|row| row.concat().trim_end().to_owned() + "\n").collect();
        text.trim_end_matches('\n').to_owned() + "\n"
    }
}

/// A live tree, its screen, and the size that it believes in.
struct Setup {
    live: LiveTree<Pipe>,
    screen: Rc<RefCell<Screen>>,
    size: Arc<Mutex<Size>>,
    written: Rc<RefCell<Vec<String>>>,
}

struct Pipe(Rc<RefCell<Screen>>, Rc<RefCell<Vec<String>>>);

impl io::Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = std::str::from_utf8(bytes).unwrap();
        self.0.borrow_mut().feed(text);
        self.1.borrow_mut().push(text.to_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn setup(width: u16, height: u16, before: &str) -> Setup {
    let screen = Screen { width: width.into(), height: height.into(), wrap: true, ..Screen::default() };
    let (screen, written) = (Rc::new(RefCell::new(screen)), Rc::new(RefCell::new(Vec::new())));
    screen.borrow_mut().feed(before);
    let size = Arc::new(Mutex::new(Size { width, height }));
    let measured = Arc::clone(&size);
    let pipe = Pipe(Rc::clone(&screen), Rc::clone(&written));
    let backend = InlineBackend::with_size(pipe, move || Ok(*measured.lock().unwrap()));
    Setup { live: LiveTree::on(backend).unwrap(), screen, size, written }
}

impl Setup {
    fn resize(&mut self, width: u16, height: u16) {
        *self.size.lock().unwrap() = Size { width, height };
        self.screen.borrow_mut().resize(width.into(), height.into());
    }

    /// The screen must be what was there before and then the picture, whatever was drawn on the way.
    fn assert_shows(&self, before: &str, now: Timestamp) {
        let Size { width, height } = *self.size.lock().unwrap();
        let picture = lines(self.live.tree(), now, Size { width, height: height - 1 });
        let picture: String =
            picture.iter().map(|line| line.to_string().trim_end().to_owned() + "\n").collect();
        let screen = self.screen.borrow();
        assert_eq!(screen.text(), format!("{before}{picture}"));
        let rows = screen.text().lines().count();
        assert_eq!((screen.row, screen.column), (rows, 0), "the cursor rests below");
        assert!(screen.wrap);
    }
}

#[test]
fn it_draws_below_what_is_there_and_leaves_the_final_tree() {
    let mut setup = setup(60, 12, "$ anabranch run x\n");
    let log = whole();
    for (n, delivery) in log.deliveries().enumerate() {
        setup.live.apply(&delivery);
        let now = at(100 * n as u64);
        assert!(setup.live.draw(now).unwrap());
        setup.assert_shows("$ anabranch run x\n", now);
    }
    setup.live.finish().unwrap();
    assert_eq!(
        setup.screen.borrow().text(),
        "\
$ anabranch run x
✓ find where cancellation is… · 2.0s · 1.5k tokens · 2 calls
├ ✓ cancel (worker) · 0.6s · 1 call
└ ✗ abort (worker) · 1.0s · 1 call · failed: nothing found
3 runs · 1.5k tokens · $0.0123 · 2.0s
"
    );
    let all = setup.written.borrow().concat();
    assert!(!all.contains("\x1b[?25") && !all.contains("\x1b[6n"), "no hidden cursor, no question");
}

#[test]
fn frames_are_limited_and_deltas_are_joined() {
    let mut setup = setup(60, 12, "");
    setup.live.apply(&two_children().deliveries().next().unwrap());
    let drawn: Vec<u64> = (0..200)
        .filter(|ms| {
            setup.live.apply(&two_children().deliveries().next().unwrap());
            setup.live.draw(at(*ms)).unwrap()
        })
        .collect();
    assert_eq!(drawn, [0, 33, 66, 99, 132, 165, 198]);
    // Nothing happens: only the clock moves.
    let idle: Vec<u64> = (200..500).filter(|ms| setup.live.draw(at(*ms)).unwrap()).collect();
    assert_eq!(idle, [231, 331, 431]);
    // A clock that goes back does not stop the picture.
    assert!(setup.live.draw(at(0)).unwrap());
}

#[test]
fn an_unchanged_picture_costs_next_to_nothing() {
    let mut setup = setup(60, 12, "");
    for delivery in whole().deliveries() {
        setup.live.apply(&delivery);
    }
    setup.live.draw(at(5000)).unwrap();
    setup.written.borrow_mut().clear();
    setup.live.draw(at(5100)).unwrap();
    let written = setup.written.borrow().concat();
    assert!(written.len() < 60, "{written:?}");
}

#[test]
fn it_survives_every_resize() {
    let mut setup = setup(70, 14, "before\n");
    let log = two_children();
    for delivery in log.deliveries() {
        setup.live.apply(&delivery);
    }
    let mut time = 2000;
    for (width, height) in [(70, 14), (40, 14), (20, 24), (90, 24), (35, 24), (100, 30), (12, 40), (60, 20)] {
        setup.resize(width, height);
        time += 100;
        setup.live.draw(at(time)).unwrap();
        setup.assert_shows("before\n", at(time));
        time += 100;
        setup.live.draw(at(time)).unwrap();
        setup.assert_shows("before\n", at(time));
    }
}

#[test]
fn a_screen_that_is_full_scrolls() {
    let before = "line\n".repeat(30);
    let mut setup = setup(50, 8, &before);
    let mut log = Sample::default();
    log.start("root", None, "root");
    for n in 0..40 {
        log.start(&format!("c{n}"), Some(("root", None)), "日本語 👩‍👩‍👧 child");
    }
    for (n, delivery) in log.deliveries().enumerate() {
        setup.live.apply(&delivery);
        setup.live.draw(at(100 * n as u64)).unwrap();
        setup.assert_shows(&before, at(100 * n as u64));
    }
}

#[test]
fn others_may_write_above() {
    let mut setup = setup(50, 10, "");
    for delivery in two_children().deliveries() {
        setup.live.apply(&delivery);
    }
    setup.live.draw(at(2000)).unwrap();
    setup.live.print_above("a warning\x1b[2J\n").unwrap();
    assert_eq!(setup.screen.borrow().text(), "a warning␛[2J\n");
    setup.live.draw(at(2001)).unwrap();
    setup.assert_shows("a warning␛[2J\n", at(2001));
}

#[test]
fn a_terminal_that_is_gone_is_an_error_and_not_a_panic() {
    struct Gone;
    impl io::Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let backend = InlineBackend::with_size(Gone, || Err(io::ErrorKind::Other.into()));
    let mut live = LiveTree::on(backend).unwrap();
    live.apply(&two_children().deliveries().next().unwrap());
    assert_eq!(live.draw(at(0)).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    assert_eq!(live.finish().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn a_process_that_was_stopped_draws_below_what_its_shell_wrote() {
    let mut setup = setup(50, 30, "");
    for delivery in two_children().deliveries() {
        setup.live.apply(&delivery);
    }
    setup.live.draw(at(2000)).unwrap();
    let before = setup.screen.borrow().text() + "[1]+  Stopped\n$ fg\n";
    setup.screen.borrow_mut().feed("[1]+  Stopped\r\n$ fg\r\n");
    setup.live.begin_anew();
    for now in [3000, 3100] {
        setup.live.draw(at(now)).unwrap();
        setup.assert_shows(&before, at(now));
    }
}

#[test]
fn a_note_stands_before_the_totals_and_fits() {
    let mut setup = setup(30, 12, "");
    for delivery in two_children().deliveries() {
        setup.live.apply(&delivery);
    }
    setup.live.draw(at(2000)).unwrap();
    setup.live.note("cancelling");
    setup.live.draw(at(2033)).unwrap();
    let text = setup.screen.borrow().text();
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("cancelling · 2 of 3 runs") && last.chars().count() <= 30, "{text}");
}

fn question(size: Size) -> Vec<Line<'static>> {
    let lines = ["? a run asks", "  for something", "y yes · n no"].map(Line::from);
    lines.into_iter().take(size.height.into()).collect()
}

/// A tree that was drawn.
fn drawn(width: u16, height: u16, before: &str) -> Setup {
    let mut setup = setup(width, height, before);
    for delivery in two_children().deliveries() {
        setup.live.apply(&delivery);
    }
    setup.live.draw(at(2000)).unwrap();
    setup
}

#[test]
fn a_question_stands_below_the_tree_and_both_stand_still() {
    let mut setup = drawn(60, 20, "$ anabranch\n");
    setup.live.ask(question, at(2000)).unwrap();
    let shown = setup.screen.borrow().text();
    assert!(shown.starts_with("$ anabranch\n●"), "{shown}");
    assert!(shown.ends_with("? a run asks\n  for something\ny yes · n no\n>\n"), "{shown}");
    assert!(shown.contains("\nstands still while you answer · 2 of 3 runs live"), "{shown}");
    // Whatever happens, nothing is drawn into what is typed.
    setup.screen.borrow_mut().feed("ye");
    for delivery in two_children().deliveries() {
        setup.live.apply(&delivery);
        assert!(!setup.live.draw(at(60_000)).unwrap());
    }
    setup.screen.borrow_mut().feed("s\r\n");
    setup.live.typed(3);
    setup.live.answered();
    setup.live.print_above("? answered").unwrap();
    assert_eq!(setup.screen.borrow().text(), "$ anabranch\n? answered\n");
    setup.live.draw(at(60_033)).unwrap();
    setup.assert_shows("$ anabranch\n? answered\n", at(60_033));
}

#[test]
fn what_is_typed_below_a_question_is_taken_off_with_it() {
    // What is typed, with or without Enter, and how large the window is made meanwhile.
    let rows: [(String, (u16, u16), bool); 8] = [
        ("y".into(), (60, 20), true),
        ("half".into(), (60, 20), false),
        ("long ".repeat(30), (60, 20), true),
        ("x".repeat(58), (60, 20), true),
        ("x".repeat(59), (60, 20), true),
        ("日本".repeat(20), (60, 20), true),
        ("made narrower".into(), (40, 30), true),
        ("made wider".into(), (80, 20), true),
    ];
    for (typed, (width, height), enter) in rows {
        let mut setup = drawn(60, 20, "before\n");
        // Asked twice: the first line said nothing.
        for _ in 0..2 {
            setup.live.ask(question, at(2000)).unwrap();
            setup.screen.borrow_mut().feed(&typed);
            if setup.screen.borrow().width != usize::from(width) {
                setup.resize(width, height);
            }
            if enter {
                setup.screen.borrow_mut().feed("\r\n");
                setup.live.typed(Span::raw(&*typed).width());
            }
        }
        setup.live.answered();
        setup.live.draw(at(2033)).unwrap();
        setup.assert_shows("before\n", at(2033));
    }
}

#[test]
fn a_question_has_room_in_a_small_window_and_scrolls_nothing_away() {
    let before = "line\n".repeat(30);
    for height in 5..16 {
        let mut setup = drawn(50, height, &before);
        setup.live.ask(question, at(2000)).unwrap();
        let shown = setup.screen.borrow().text();
        assert!(shown.contains("? a run asks\n") && shown.ends_with(">\n"), "{height}: {shown}");
        setup.screen.borrow_mut().feed("y\r\n");
        setup.live.typed(1);
        setup.live.answered();
        setup.live.draw(at(2033)).unwrap();
        setup.assert_shows(&before, at(2033));
    }
}

#[test]
fn a_question_is_drawn_anew_after_a_stop() {
    let mut setup = drawn(50, 30, "");
    setup.live.ask(question, at(2000)).unwrap();
    setup.screen.borrow_mut().feed("^Z\r\n[1]+  Stopped\r\n$ fg\r\n");
    let before = setup.screen.borrow().text();
    setup.live.begin_anew();
    setup.live.ask(question, at(3000)).unwrap();
    assert!(setup.screen.borrow().text().starts_with(&before));
    setup.screen.borrow_mut().feed("y\r\n");
    setup.live.typed(1);
    setup.live.answered();
    setup.live.draw(at(3033)).unwrap();
    setup.assert_shows(&before, at(3033));
}

#[test]
fn colours_can_be_left_out() {
    for colours in [true, false] {
        let mut setup = setup(60, 12, "");
        setup.live = setup.live.colours(colours);
        for delivery in whole().deliveries() {
            setup.live.apply(&delivery);
            setup.live.draw(at(2000)).unwrap();
        }
        setup.live.draw(at(3000)).unwrap();
        setup.live.finish().unwrap();
        assert_eq!(setup.written.borrow().concat().contains("\x1b[38;5;"), colours);
    }
}
