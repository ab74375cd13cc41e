use futures::FutureExt;

use super::*;

fn keyboard() -> (Keyboard, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Keyboard::of(ours).unwrap(), theirs)
}

fn line(text: &str) -> Typed {
    Typed::Line(text.to_owned())
}

/// Has the thread take what it can, until that is so much.
async fn take(keyboard: &mut Keyboard, bytes: usize) {
    while keyboard.desk.lock().typed.len() < bytes {
        assert!(keyboard.line().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_line_comes_when_it_is_whole() {
    let (mut keyboard, mut fingers) = keyboard();
    assert!(keyboard.line().now_or_never().is_none());
    fingers.write_all("é".as_bytes()).unwrap();
    // What was read so far is kept, whoever stops waiting.
    take(&mut keyboard, 2).await;
    fingers.write_all(b"t\xc3\n").unwrap();
    assert_eq!(keyboard.line().await.unwrap(), line("ét\u{fffd}"));
    fingers.write_all(b"\n").unwrap();
    assert_eq!(keyboard.line().await.unwrap(), line(""));
}

#[tokio::test]
async fn what_nobody_wants_is_not_read() {
    let (input, mut fingers) = UnixStream::pair().unwrap();
    let mut others = input.try_clone().unwrap();
    let mut keyboard = Keyboard::of(input).unwrap();
    fingers.write_all(b"one\n").unwrap();
    assert_eq!(keyboard.line().await.unwrap(), line("one"));
    // Answered: what is typed now is for others.
    fingers.write_all(b"two\n").unwrap();
    let mut read = [0; 4];
    others.read_exact(&mut read).unwrap();
    assert_eq!(&read, b"two\n");
    // The same where a question was taken off while somebody waited.
    assert!(keyboard.line().now_or_never().is_none());
    keyboard.forget();
    fingers.write_all(b"six\n").unwrap();
    others.read_exact(&mut read).unwrap();
    assert_eq!(&read, b"six\n");
}

#[tokio::test]
async fn what_was_half_typed_is_forgotten() {
    let (mut keyboard, mut fingers) = keyboard();
    fingers.write_all(b"old").unwrap();
    take(&mut keyboard, 3).await;
    keyboard.forget();
    fingers.write_all(b"new\n").unwrap();
    assert_eq!(keyboard.line().await.unwrap(), line("new"));
}

#[tokio::test]
async fn a_flood_without_an_end_is_bounded() {
    let (mut keyboard, mut fingers) = keyboard();
    let flood = std::thread::spawn(move || {
        fingers.write_all(&vec![b'x'; 4 * LINE_BYTES]).unwrap();
        fingers
    });
    take(&mut keyboard, LINE_BYTES).await;
    let mut fingers = flood.join().unwrap();
    fingers.write_all(b"\n").unwrap();
    let Typed::Line(text) = keyboard.line().await.unwrap() else { panic!("no line") };
    assert!(text.len() <= LINE_BYTES + 2 * 4096, "{}", text.len());
}

#[tokio::test]
async fn a_terminal_that_is_gone_is_an_error_and_the_thread_ends_with_its_keyboard() {
    let (mut keyboard, fingers) = keyboard();
    drop(fingers);
    assert_eq!(keyboard.line().await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    let desk = Arc::downgrade(&keyboard.desk);
    drop(keyboard);
    while desk.strong_count() > 0 {
        tokio::task::yield_now().await;
    }
}
