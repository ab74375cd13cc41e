use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures::future::{join, join_all, poll_immediate};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use crate::message::{Chunk, MessageBody, ProcessingMessage};
use crate::outcome::SubAgentOutcome;
use crate::stream::SubAgentStream;
use crate::stream::desk::{Sink, Taken};
use crate::stream::emitter::{Emitter, Slot};

fn text(message: &ProcessingMessage) -> String {
    let MessageBody::Chunk(chunk) = message.body() else { panic!("{message:?}") };
    chunk.content.to_string()
}

async fn texts(stream: SubAgentStream) -> Vec<String> {
    stream.map(|message| text(&message)).collect().await
}

async fn say(emit: &Emitter, who: &str, count: usize) {
    for number in 0..count {
        emit.send(Chunk::text(format!("{who}{number}"))).await;
    }
}

/// A stream, and a look at its slot.
fn generate<F>(author: impl FnOnce(Emitter) -> F) -> (SubAgentStream, Arc<Slot>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut slot = None;
    let stream = SubAgentStream::generate(|emit| {
        slot = Some(Arc::clone(&emit.slot));
        let work = author(emit);
        async move {
            work.await;
            SubAgentOutcome::completed("done")
        }
    });
    (stream, slot.unwrap())
}

/// Each sender's messages in its order, and none lost or doubled.
fn assert_complete(mut got: Vec<String>, senders: &[&str], count: usize) {
    for who in senders {
        let theirs: Vec<_> = got.extract_if(.., |text| text.starts_with(who)).collect();
        let expected: Vec<_> = (0..count).map(|number| format!("{who}{number}")).collect();
        assert_eq!(theirs, expected);
    }
    assert_eq!(got, [""; 0]);
}

#[tokio::test]
async fn a_block_and_its_stream_need_no_lock() {
    let (stream, slot) = generate(|emit| async move { say(&emit, "a", 100).await });
    assert_complete(texts(stream).await, &["a"], 100);
    assert_eq!((slot.in_use.load(Ordering::Relaxed), slot.over_desk.load(Ordering::Relaxed)), (false, 100));
}

#[tokio::test]
async fn parts_of_one_block_take_turns() {
    let (stream, slot) = generate(|emit| async move {
        join_all(["a", "b", "c"].map(|who| say(&emit, who, 20))).await;
    });
    assert_complete(texts(stream).await, &["a", "b", "c"], 20);
    assert!(!slot.in_use.load(Ordering::Relaxed));
}

#[tokio::test]
async fn parts_with_wakers_of_their_own_are_woken() {
    let (stream, slot) = generate(|emit| async move {
        let parts: FuturesUnordered<_> = ["a", "b", "c"].into_iter().map(|who| say(&emit, who, 20)).collect();
        join(parts.collect::<()>(), say(&emit, "d", 20)).await;
        say(&emit, "e", 20).await;
    });
    assert_complete(texts(stream).await, &["a", "b", "c", "d", "e"], 20);
    assert!(slot.in_use.load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_send_that_changes_its_waker_half_way_ends() {
    let (stream, _) = generate(|emit| async move {
        let mut send = emit.send(Chunk::text("a0"));
        assert!(poll_immediate(&mut send).await.is_none());
        let parts: FuturesUnordered<_> = [send].into_iter().collect();
        parts.collect::<()>().await;
    });
    assert_complete(texts(stream).await, &["a"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_and_the_block_all_get_through() {
    let (stream, _) = generate(|emit| async move {
        let tasks = ["a", "b", "c"].map(|who| {
            let emit = emit.clone();
            tokio::spawn(async move { say(&emit, who, 500).await })
        });
        say(&emit, "d", 500).await;
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_complete(texts(stream).await, &["a", "b", "c", "d"], 500);
}

#[tokio::test]
async fn streams_inside_one_another_keep_their_messages_apart() {
    let (stream, _) = generate(|emit| async move {
        // The outer message lies on the desk while the inner stream is polled, and the inner block knows both emitters.
        let outer = emit.clone();
        let (inner, _) = generate(|inner| async move {
            join(say(&inner, "inner", 10), say(&outer, "through", 10)).await;
        });
        let (got, ()) = join(texts(inner), say(&emit, "outer", 10)).await;
        assert_complete(got, &["inner"], 10);
    });
    assert_complete(texts(stream).await, &["outer", "through"], 10);
}

#[tokio::test]
async fn a_panic_leaves_the_desk_to_the_outer_stream() {
    let (stream, _) = generate(|emit| async move {
        let (inner, _) = generate(|inner| async move {
            let mut send = inner.send(Chunk::text("lost"));
            assert!(poll_immediate(&mut send).await.is_none());
            panic!("on purpose");
        });
        let inner = std::panic::AssertUnwindSafe(texts(inner)).catch_unwind();
        let (caught, ()) = join(inner, say(&emit, "outer", 10)).await;
        assert!(caught.is_err());
    });
    assert_complete(texts(stream).await, &["outer"], 10);
}

/// A log that takes all but every third message, and has the sender of every fifth wait.
#[derive(Default)]
struct Log(Mutex<Vec<String>>);

impl Log {
    fn list(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Sink for Log {
    fn take(&self, message: &mut Option<ProcessingMessage>) -> Taken {
        let mut list = self.0.lock().unwrap();
        if list.len() % 3 == 2 {
            return Taken::No;
        }
        list.extend(message.take().as_ref().map(text));
        if list.len().is_multiple_of(5) { Taken::Wait } else { Taken::GoOn }
    }
}

/// Reads the stream as a pipe does, which puts into the log what did not go there by itself; how often it was polled.
fn pipe(mut stream: SubAgentStream, log: &Arc<Log>) -> usize {
    let sink: Arc<dyn Sink> = Arc::<Log>::clone(log);
    let mut cx = Context::from_waker(Waker::noop());
    let mut polls = 0;
    loop {
        polls += 1;
        assert!(polls < 1000);
        let mut message = None;
        match stream.poll_into(&mut cx, Some(&sink), &mut message) {
            Poll::Ready(true) => log.0.lock().unwrap().extend(message.as_ref().map(text)),
            Poll::Ready(false) => return polls,
            Poll::Pending => assert!(message.is_none()),
        }
    }
}

#[test]
fn what_a_block_says_goes_straight_into_the_sink_and_in_its_order() {
    let (stream, slot) = generate(|emit| async move { say(&emit, "a", 100).await });
    let log = Arc::new(Log::default());
    let polls = pipe(stream, &log);
    assert_complete(log.list(), &["a"], 100);
    // Once for each that the sink did not take, once for each whose sender had to wait.
    assert!((40..=56).contains(&polls), "{polls}");
    assert!(!slot.in_use.load(Ordering::Relaxed));
}

#[test]
fn parts_of_one_block_get_straight_into_the_sink_too() {
    let (stream, _) = generate(|emit| async move {
        join_all(["a", "b", "c"].map(|who| say(&emit, who, 20))).await;
    });
    let log = Arc::new(Log::default());
    pipe(stream, &log);
    assert_complete(log.list(), &["a", "b", "c"], 20);
}

#[test]
fn a_stream_that_somebody_reads_in_between_has_no_sink() {
    let (stream, _) = generate(|emit| async move {
        let (inner, _) = generate(|inner| async move { say(&inner, "inner", 10).await });
        let (got, ()) = join(texts(inner), say(&emit, "outer", 10)).await;
        assert_complete(got, &["inner"], 10);
        let (lost, _) = generate(|inner| async move {
            say(&inner, "lost", 1).await;
            panic!("on purpose");
        });
        let lost = std::panic::AssertUnwindSafe(texts(lost)).catch_unwind();
        assert!(join(lost, say(&emit, "after", 10)).await.0.is_err());
    });
    let log = Arc::new(Log::default());
    pipe(stream, &log);
    assert_complete(log.list(), &["outer", "after"], 10);
}

#[test]
fn a_stream_between_two_messages_hands_the_sink_on() {
    let (stream, _) = generate(|emit| async move { say(&emit, "a", 30).await });
    let stream = stream.between(Chunk::text("before"), |outcome| {
        assert!(outcome.is_ok());
        vec![Chunk::text("after").into(), Chunk::text("last").into()]
    });
    let log = Arc::new(Log::default());
    let polls = pipe(stream, &log);
    let mut got = log.list();
    assert_eq!(
        (got.remove(0), got.pop(), got.pop()),
        ("before".to_owned(), Some("last".into()), Some("after".into()))
    );
    assert_complete(got, &["a"], 30);
    assert!(polls < 25, "{polls}");
}
