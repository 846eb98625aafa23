use flowtrace_network::testing::{Bsp, bsp, reference, true_period};

use super::*;

fn run(duration_s: f64, rules: &[(&str, f64, f64)]) -> RunFacts {
    let rules = rules.iter().map(|&(rule, time_s, cpu_s)| {
        let facts = RuleFacts {
            executions: 2.0,
            time_ns: time_s * 1e9,
            cpu_ns: cpu_s * 1e9,
            waits_ns: (time_s - cpu_s) * 1e9,
            read_bytes: 1e6,
            write_bytes: 1e5,
            path_ns: time_s * 1e9,
            span_ns: time_s * 1e9,
            ..RuleFacts::default()
        };
        (rule.to_owned(), facts)
    });
    RunFacts {
        trace: "t.db".into(),
        duration_ns: (duration_s * 1e9) as i64,
        path_ns: (duration_s * 1e9) as i64,
        rules: rules.collect(),
        ..RunFacts::default()
    }
}

fn found(a: &[RunFacts], b: &[RunFacts]) -> Vec<(Subject, String, Change)> {
    let findings = compare(a, b).findings.into_iter();
    findings.map(|f| (f.subject, f.name, f.change)).collect()
}

fn rule(name: &str, change: Change) -> (Subject, String, Change) {
    (Subject::Rule, name.into(), change)
}

/// The comparison as HTML.
fn page(comparison: &Comparison) -> String {
    let mut page = Vec::new();
    html::write(comparison, &mut page).unwrap();
    String::from_utf8(page).unwrap()
}

#[test]
fn noise_is_no_finding() {
    let a = run(10.0, &[("sort", 4.0, 3.9), ("cat", 0.02, 0.01)]);
    let b = run(13.0, &[("sort", 5.2, 4.8), ("cat", 0.19, 0.05)]);
    assert_eq!(found(&[a], &[b]), []);
}

/// Six compressions one after another, and side by side: the reason is that, and nothing else.
#[test]
fn steps_side_by_side_are_the_reason_of_a_shorter_run() {
    let a = run(65.0, &[("xz", 65.0, 65.0)]);
    let mut b = run(20.5, &[("xz", 65.0, 65.0)]);
    let xz = b.rules.get_mut("xz").unwrap();
    (xz.span_ns, xz.path_ns) = (20.5e9, 20.5e9);
    let comparison = compare(&[a], &[b]);
    let [one] = comparison.findings.as_slice() else {
        panic!("{:?}", comparison.findings);
    };
    assert_eq!(
        text::sentence(one),
        "shorter  xz: 1 min 05 s → 20.5 s (−68 %) · 1.0 → 3.2 at a time"
    );
    let text = text::text(&comparison, None);
    assert_eq!(text.matches("--with and --against").count(), 1, "{text}");
}

/// A run whose `xz` lived one at a time or two, on a machine that had other work, too.
fn xz(duration_s: f64, span_s: f64, cpu_s: f64, queue_s: f64, other_load: f64) -> RunFacts {
    let mut one = run(duration_s, &[("xz", cpu_s, cpu_s)]);
    let xz = one.rules.get_mut("xz").unwrap();
    (xz.span_ns, xz.queue_ns) = (span_s * 1e9, queue_s * 1e9);
    xz.path_ns = duration_s * 0.7e9;
    (one.cpu_ns, one.queue_ns) = (cpu_s * 1e9, queue_s * 1e9);
    one.other_load = Some(other_load);
    one
}

/// The findings as sentences, without their probabilities.
fn sentences(a: &[RunFacts], b: &[RunFacts]) -> Vec<String> {
    let findings = compare(a, b).findings.into_iter();
    let without_p = |f| text::sentence(&Finding { p: None, ..f });
    findings.map(without_p).collect()
}

/// A crowded machine makes the duration unsure, but not how many processes ran at a time; a new rule of some
/// milliseconds is less.
#[test]
fn steps_side_by_side_are_the_reason_on_a_crowded_machine() {
    let a = xz(45.9, 33.9, 29.0, 4.9, 1.0);
    let mut b = xz(27.8, 18.8, 25.6, 10.8, 0.7);
    b.rules.insert(
        "xargs".into(),
        run(1.0, &[("xargs", 0.002, 0.002)]).rules["xargs"].clone(),
    );
    let found = sentences(&[a], &[b]);
    assert_eq!(
        found[0],
        "shorter  xz: 33.9 s → 18.8 s (−45 %) · 1.0 → 1.9 at a time"
    );
    assert!(found[1].starts_with("new      xargs"), "{found:?}");
}

/// More runs, whose durations scatter, give no worse answer: the number at a time does not scatter.
#[test]
fn steps_side_by_side_are_the_reason_in_runs_that_scatter() {
    let of = |times: [f64; 3], at_a_time: f64| {
        times.map(|time| xz(time, time, time * at_a_time, 0.0, 0.0))
    };
    let (a, b) = (of([1.6, 1.8, 2.1], 1.0), of([0.90, 0.91, 0.93], 1.98));
    let comparison = compare(&a, &b);
    assert_eq!(comparison.duration.verdict, DurationVerdict::Unsure);
    assert_eq!(comparison.findings.len(), 1);
    assert!(comparison.findings[0].p.is_some_and(|p| p < CHANCE));
    assert_eq!(
        sentences(&a, &b),
        ["shorter  xz: 1.8 s → 913 ms (−50 %) · 1.0 → 2.0 at a time"]
    );
    // Three at a time, more or less.
    let (a, b) = (of([1.6, 1.8, 2.1], 3.0), of([1.2, 1.3, 1.5], 3.1));
    assert_eq!(sentences(&a, &b), [""; 0]);
}

/// A machine that is busy with other things is no change of the program, and so no finding.
#[test]
fn other_load_on_the_machine_is_the_reason_of_a_longer_run() {
    let a = xz(50.1, 39.0, 30.9, 44.2, 1.1);
    let b = xz(27.8, 18.8, 25.6, 10.8, 0.7);
    let comparison = compare(&[a], &[b]);
    assert_eq!(comparison.findings, []);
    let text = text::text(&comparison, Some(100));
    assert!(
        text.starts_with(
            "flowtrace: the duration differs · 50.1 s → 27.8 s (−45 %), which may be chance
  reason   xz: 39.0 s → 18.8 s (−52 %)
           waits for a CPU 44.2 s → 10.8 s (other load on the machine: 1.1 → 0.7 CPUs)\n"
        ),
        "{text}"
    );
    assert!(page(&comparison).contains("other load on the machine"));
}

#[test]
fn many_small_calls_are_found_though_the_bytes_are_the_same() {
    let with = |calls: f64, bytes: f64| {
        let mut run = run(10.0, &[("tally", 2.0, 2.0), ("xz", 5.0, 5.0)]);
        let tally = run.rules.get_mut("tally").unwrap();
        (tally.write_calls, tally.write_bytes) = (calls, bytes);
        run.rules.get_mut("xz").unwrap().read_calls = 50_000.0;
        run
    };
    assert_eq!(
        sentences(&[with(908_000.0, 8e6)], &[with(9_000.0, 8e6)]),
        [
            "fewer    tally: write calls 908\u{2009}000 → 9\u{2009}000 (100 times fewer) · 9 B → 889 B each · \
             was 95 % of all read and write calls"
        ]
    );
    // Twice the data needs twice the calls.
    assert_eq!(
        found(&[with(100_000.0, 8e6)], &[with(200_000.0, 16e6)]),
        [rule("tally", Change::Writes)]
    );
    // A small part of all calls.
    assert_eq!(
        sentences(&[with(1_000.0, 8e6)], &[with(5_000.0, 8e6)]),
        [""; 0]
    );
}

#[test]
fn a_crowded_machine_gets_a_larger_allowance() {
    let a = run(2.0, &[("sort", 1.0, 0.7), ("cat", 0.3, 0.1)]);
    let mut b = run(3.0, &[("sort", 1.4, 1.0), ("cat", 0.9, 0.1)]);
    assert_eq!(
        found(std::slice::from_ref(&a), std::slice::from_ref(&b)),
        [rule("cat", Change::Waits), rule("sort", Change::Cpu)]
    );
    // The processes of b waited for CPUs twice as long as they ran.
    (b.cpu_ns, b.queue_ns) = (1e9, 2e9);
    assert_eq!(found(std::slice::from_ref(&a), &[b.clone()]), []);
    // A rule that takes several times as long is found all the same.
    b.rules.get_mut("sort").unwrap().cpu_ns = 6e9;
    assert_eq!(found(&[a], &[b]), [rule("sort", Change::Cpu)]);
}

#[test]
fn each_change_is_one_finding() {
    let before = [("sort", 4.0, 3.9), ("cat", 1.0, 0.2), ("old", 1.0, 1.0)];
    let a = run(6.0, &before);
    let slower = run(
        9.0,
        &[("sort", 7.0, 6.9), ("cat", 1.0, 0.2), ("old", 1.0, 1.0)],
    );
    assert_eq!(
        found(std::slice::from_ref(&a), &[slower]),
        [rule("sort", Change::Cpu)]
    );
    let waits = run(
        9.0,
        &[("sort", 4.0, 3.9), ("cat", 4.0, 0.2), ("old", 1.0, 1.0)],
    );
    assert_eq!(
        found(std::slice::from_ref(&a), &[waits]),
        [rule("cat", Change::Waits)]
    );
    let other = run(
        6.0,
        &[("sort", 4.0, 3.9), ("cat", 1.0, 0.2), ("new", 1.0, 1.0)],
    );
    let comparison = compare(std::slice::from_ref(&a), &[other]);
    assert_eq!(comparison.findings[0].name, "new");
    let cost = comparison.findings[0].remark.as_deref().unwrap();
    assert!(
        cost.starts_with("2 × · 1.0 s · 1.0 s cpu · read 1.0 MB · wrote 100 kB"),
        "{cost}"
    );
    assert_eq!(
        (
            comparison.findings[1].name.as_str(),
            comparison.findings[1].change
        ),
        ("old", Change::Gone)
    );
}

#[test]
fn several_runs_make_small_differences_certain() {
    let side = |times: [f64; 3]| times.map(|time| run(time, &[("sort", time, 0.01)]));
    let (a, b) = (side([1.0, 1.01, 0.99]), side([1.2, 1.21, 1.19]));
    assert_eq!(found(&a[..1], &b[..1]), []);
    let certain = compare(&a, &b);
    assert_eq!(certain.findings.len(), 1);
    assert!(certain.findings[0].p.is_some_and(|p| p < CHANCE));
    let spread = (side([1.0, 1.4, 0.8]), side([1.2, 0.9, 1.5]));
    assert_eq!(found(&spread.0, &spread.1), []);
}

#[test]
fn an_input_that_grew_stands_first_and_bytes_have_little_allowance() {
    let with = |size: f64| {
        let mut run = run(1.0, &[("sort", 0.1, 0.1)]);
        run.rules.get_mut("sort").unwrap().read_bytes = size;
        let file = |is_input| FileFacts {
            count: 1.0,
            size_bytes: size,
            is_input,
            is_used: true,
        };
        run.files = [
            ("in".to_owned(), file(true)),
            ("out".to_owned(), file(false)),
        ]
        .into();
        run
    };
    assert_eq!(found(&[with(1e6)], &[with(1.005e6)]), []);
    let expected = [
        (Subject::Input, "in".to_owned(), Change::Size),
        rule("sort", Change::Reads),
        (Subject::File, "out".to_owned(), Change::Size),
    ];
    assert_eq!(found(&[with(1e6)], &[with(2e6)]), expected);
}

#[test]
fn of_a_replay_the_files_are_compared_and_not_the_steps() {
    let file = |count: f64, size_bytes: f64, is_input| FileFacts {
        count,
        size_bytes,
        is_input,
        is_used: true,
    };
    let checked = FileFacts {
        is_used: false,
        ..file(1.0, 0.0, true)
    };
    let mut original = run(1.0, &[("sort", 0.5, 0.5)]);
    original.files = [("in".to_owned(), file(1.0, 1e6, true))].into();
    original.placed = [
        ("in".to_owned(), file(1.0, 1e6, true)),
        ("part*".to_owned(), file(2.0, 1e6, false)),
        ("seen".to_owned(), checked),
    ]
    .into();
    let mut replay = run(2.0, &[]);
    replay.is_replay = true;
    // The size is that of the read part, which is less than the file's.
    replay.placed = [
        ("in".to_owned(), file(1.0, 1e5, true)),
        ("part*".to_owned(), file(2.0, 1e6, true)),
    ]
    .into();
    let runs = |replay: &RunFacts| ([original.clone()], [replay.clone()]);
    let (a, b) = runs(&replay);
    assert_eq!(found(&a, &b), []);
    assert_eq!(found(&b, &a), []);
    let text = text::text(&compare(&a, &b), None);
    assert!(text.contains("\n  note     t.db is a replay: "), "{text}");
    assert!(page(&compare(&a, &b)).contains("t.db is a replay: "));

    // A file that the replay did not make is found.
    replay.placed.remove("part*");
    let (a, b) = runs(&replay);
    assert_eq!(
        found(&a, &b),
        [(Subject::File, "part*".to_owned(), Change::Gone)]
    );
    // Two replays are compared like any other runs.
    assert_eq!(compare(&b, &b).notes, [""; 0]);
}

#[test]
fn a_failed_run_is_said_first() {
    let mut b = run(1.0, &[("sort", 0.5, 0.5)]);
    b.warnings.push("the command failed: exit 2".into());
    let comparison = compare(&[run(1.0, &[("sort", 0.5, 0.5)])], &[b]);
    let text = text::text(&comparison, None);
    assert!(
        text.starts_with("flowtrace: warning: t.db: the command failed: exit 2\n"),
        "{text}"
    );
    let written = page(&comparison);
    assert!(written.contains("the command failed: exit 2") && written.contains("</html>"));
}

/// A fact that one kind of recording cannot see is no difference of the runs.
#[test]
fn runs_that_were_recorded_in_different_ways_are_said_to_be() {
    let recorded = |trace: &str, files: &str, elsewhere| {
        let mut run = run(2.0, &[("sort", 1.0, 0.9)]);
        run.trace = trace.into();
        run.recording = Recording {
            files: files.into(),
            processes: "ptrace".into(),
            elsewhere,
            left_out: false,
            directories: vec![".".into()],
        };
        run
    };
    let a = [
        recorded("a.db", "direct-mmap", true),
        recorded("b.db", "direct-mmap", true),
    ];
    let b = [recorded("c.db", "cached", false)];
    let compared = compare(&a, &b);
    assert_eq!(
        compared.warnings,
        [
            "recorded in different ways, so that differences may come from that: \
             file calls: cached in c.db; direct-mmap in a.db, b.db",
            "recorded in different ways, so that differences may come from that: \
             pipes and files elsewhere: not seen in c.db; seen in a.db, b.db",
        ]
    );
    assert!(text::text(&compared, None).contains("warning: recorded in different ways"));
    assert!(page(&compared).contains("recorded in different ways"));
    let json = serde_json::to_value(&compared).unwrap();
    assert_eq!(json["b"][0]["recording"]["files"], "cached");
    assert!(compare(&a[..1], &a[1..]).warnings.is_empty());
}

/// The packets of a ring of four processes that compute for `work_s` in each of 200 rounds; process 2
/// takes `factor_of_2` times as long.
fn packets(work_s: f64, factor_of_2: f64, seed: u64) -> RunFacts {
    let mut program = Bsp {
        work_s: vec![work_s; 4],
        seed,
        ..Bsp::ring(4)
    };
    program.work_s[2] *= factor_of_2;
    let made = bsp(&program);
    RunFacts {
        trace: "p.db".into(),
        duration_ns: (made.run.seconds() * 1e9) as i64,
        network: NetworkFacts::of_run(&made.run),
        ..RunFacts::default()
    }
}

/// Half the iteration rate and twice the duration: the same messages, but another duration, rate and
/// period, as predicted.
#[test]
fn packet_traces_are_compared_by_their_rates() {
    let (a, b) = (packets(0.004, 1.0, 1), packets(0.008, 1.0, 2));
    let comparison = compare(std::slice::from_ref(&a), std::slice::from_ref(&b));
    let changes: Vec<Change> = comparison.findings.iter().map(|f| f.change).collect();
    assert_eq!(changes, [Change::Duration, Change::Rate, Change::Period]);
    for finding in &comparison.findings[1..] {
        let ratio = finding.b / finding.a;
        let expected = if finding.change == Change::Rate {
            0.5
        } else {
            2.0
        };
        assert!((ratio / expected - 1.0).abs() < 0.03, "{finding:?}");
    }
    let row = comparison.network.as_ref().unwrap();
    let error = row.predicted_ns.unwrap() / row.b.span_ns - 1.0;
    assert!(error.abs() < 0.03, "{error}");
    let shown = text::text(&comparison, None);
    assert!(shown.starts_with("flowtrace: 3 differences"), "{shown}");
    assert!(
        shown.contains("slower   iterations: ") && shown.contains("longer   period: "),
        "{shown}"
    );
    assert!(
        shown.contains("packets  predicted by the rates: "),
        "{shown}"
    );
    assert!(page(&comparison).contains("<h2>Packets</h2>"));
    let json = serde_json::to_value(&comparison).unwrap();
    assert_eq!(json["findings"][0]["subject"], "run");
    assert_eq!(json["network"]["a"]["messages"], 1600.0);
    // Another run of the same program.
    assert_eq!(found(&[a], &[packets(0.004, 1.0, 9)]), []);
}

#[test]
fn who_holds_the_others_up_is_compared() {
    let (a, b) = (packets(0.004, 1.0, 1), packets(0.004, 1.8, 2));
    let comparison = compare(std::slice::from_ref(&a), std::slice::from_ref(&b));
    let balance = comparison
        .findings
        .iter()
        .find(|f| f.change == Change::Balance)
        .unwrap();
    assert_eq!(
        (balance.name.as_str(), balance.subject),
        ("h2", Subject::Network)
    );
    assert!(
        balance.remark.as_deref().unwrap().ends_with("nobody → h2"),
        "{balance:?}"
    );
}

/// Longer and more messages at the same rate.
#[test]
fn messages_and_volume_are_compared() {
    let a = packets(0.004, 1.0, 1);
    let mut b = a.clone();
    let network = b.network.as_mut().unwrap();
    network.messages *= 1.5;
    network.payload_bytes *= 3.0;
    assert_eq!(
        found(&[a], &[b]),
        [
            (Subject::Network, "messages".into(), Change::Messages),
            (Subject::Network, "payload".into(), Change::Payload)
        ]
    );
}

#[test]
fn another_duration_is_never_no_difference() {
    let of = |seconds: &[f64]| -> Vec<RunFacts> { seconds.iter().map(|s| run(*s, &[])).collect() };
    let headline = |a: &[f64], b: &[f64]| text::headline(&compare(&of(a), &of(b)));
    assert!(headline(&[10.0], &[10.9]).starts_with("no difference"));
    assert!(headline(&[10.0], &[11.1]).starts_with("the duration differs"));
    assert!(headline(&[10.0], &[16.0]).starts_with("1 difference"));
    assert!(headline(&[0.1], &[0.2]).starts_with("the duration differs"));
    // The difference is beyond the spread.
    assert!(headline(&[10.0, 10.05, 9.95], &[10.5, 10.55, 10.45]).starts_with("1 difference"));
    assert!(headline(&[10.0, 11.0, 9.0], &[10.5, 11.5, 9.5]).starts_with("no difference"));
    // The sides are apart, but have too few runs to be sure.
    assert!(headline(&[10.0, 11.0], &[11.5, 12.9]).starts_with("the duration differs"));
}

/// MG on shared CPUs, and the same with host 4 loaded: 2.7 times as long (iterations), caused by host
/// 4.
#[test]
fn a_loaded_host_is_a_difference_of_the_reference_captures() {
    let (Some(none), Some(full)) = (reference("mg.W-quota-none"), reference("mg.W-quota-full"))
    else {
        return;
    };
    let facts = |run: &flowtrace_network::Run| RunFacts {
        duration_ns: (run.seconds() * 1e9) as i64,
        network: NetworkFacts::of_run(run),
        ..RunFacts::default()
    };
    let comparison = compare(&[facts(&none)], &[facts(&full)]);
    println!("{}", text::text(&comparison, None));
    let of = |change| comparison.findings.iter().find(|f| f.change == change);
    assert!(of(Change::Duration).is_some() && of(Change::Rate).is_some());
    let period = of(Change::Period).unwrap();
    let truth = true_period("mg.W-quota-full") / true_period("mg.W-quota-none");
    assert!(
        (period.b / period.a / truth - 1.0).abs() < 0.05,
        "{period:?} {truth}"
    );
    assert_eq!(of(Change::Balance).unwrap().name, "10.77.0.4");
    assert!(of(Change::Messages).is_none() && of(Change::Payload).is_none());
}
