//! Threads put together to processes.

use super::*;

fn span(from_ns: i64, to_ns: i64, doing: Doing) -> Span {
    Span {
        process: ProcessId(0),
        from_ns,
        to_ns,
        doing,
        error_ns: 0,
        waker: None,
        sleeps: false,
    }
}

#[test]
fn a_process_waits_only_while_no_thread_works() {
    let child = Doing::Child(None);
    let mut threads = vec![
        span(0, 100, child),
        span(20, 40, Doing::Busy),
        span(30, 60, Doing::Other),
        span(100, 110, child),
    ];
    threads.sort_by_key(|s| (s.from_ns, s.to_ns));
    let mut spans = Vec::new();
    put_together(&threads, &mut spans);
    assert_eq!(
        spans,
        [
            span(0, 20, child),
            span(20, 40, Doing::Busy),
            span(40, 110, child)
        ]
    );
}

#[test]
fn who_joins_a_thread_does_what_that_one_does() {
    let threads = [span(0, 100, Doing::Lock), span(10, 90, Doing::Other)];
    let mut spans = Vec::new();
    put_together(&threads, &mut spans);
    assert_eq!(
        spans,
        [
            span(0, 10, Doing::Lock),
            span(10, 90, Doing::Other),
            span(90, 100, Doing::Lock)
        ]
    );
}
