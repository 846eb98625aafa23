//! Corrects samples by the time accounting of the kernel. The times that the kernel counted are exact, a
//! sample is a single observation: where both describe the same thread, the samples give way.

use flowtrace_schema::{SampleRow, TimesRow};

use super::threads::state;
use super::{STATES, Shares, State, sum_of};

/// The mixes of one image: the true shares of the states in its pieces, by the sampled state.
pub(super) struct Mixes {
    /// Shares by the sampled state.
    pub(super) of: [Shares; STATES],
}

/// A share of 1 for one state.
fn pure(state: State) -> Shares {
    let mut shares = [0.0; STATES];
    shares[state as usize] = 1.0;
    shares
}

/// Makes shares sum to 1; nothing at all is unknown.
fn normalised(mut shares: Shares) -> Shares {
    let sum: f64 = shares.iter().sum();
    if sum <= 0.0 {
        return pure(State::Unknown);
    }
    for share in &mut shares {
        *share /= sum;
    }
    shares
}

/// Computes the mixes of an image. `seen` has the sampled time of each state, ns; `guess` is the state of
/// waits about which nothing else is known.
pub(super) fn mixes(row: &TimesRow, seen: &Shares, guess: State) -> Mixes {
    let mut mixes = Mixes {
        of: State::ALL.map(pure),
    };
    let known = row
        .on_cpu_ns
        .zip(row.run_queue_ns)
        .zip(row.storage_ns.zip(row.wait_ns));
    let Some(((cpu, queue), (storage, wait))) = known else {
        return mixes;
    };
    let tracer = row.tracer_ns.unwrap_or(0) as f64;
    let (cpu, queue) = (cpu as f64, queue as f64);
    let (storage, wait) = (storage as f64, wait as f64);
    let active = cpu + queue;
    let seen_active = sum_of(seen, State::is_active);
    let seen_tracer = seen[State::Tracer as usize];
    let seen_unknown = seen[State::Unknown as usize];
    let seen_blocked = seen.iter().sum::<f64>() - seen_active - seen_tracer - seen_unknown;
    let of_active = |amount: f64| {
        let mut shares = [0.0; STATES];
        let whole = active.max(1.0);
        shares[State::Cpu as usize] = amount * cpu / whole;
        shares[State::Queue as usize] = amount * queue / whole;
        shares
    };
    let of_blocked = |amount: f64| {
        let mut shares = [0.0; STATES];
        if seen_blocked > 0.0 {
            for state in State::ALL {
                let is_blocked =
                    !state.is_active() && !matches!(state, State::Tracer | State::Unknown);
                if is_blocked {
                    shares[state as usize] = amount * seen[state as usize] / seen_blocked;
                }
            }
        } else {
            let whole = (storage + wait).max(1.0);
            shares[State::File as usize] = amount * storage / whole;
            shares[guess as usize] += amount * wait / whole;
        }
        shares
    };
    let sum = |a: Shares, b: Shares| {
        let mut shares = a;
        for (share, more) in shares.iter_mut().zip(b) {
            *share += more;
        }
        shares
    };
    let is_single = row.threads.is_none_or(|threads| threads <= 1);
    // Time without samples is the difference between the counted and the sampled time.
    let rest = sum(
        sum(
            of_active((active - seen_active).max(0.0)),
            of_blocked((storage + wait - seen_blocked).max(0.0)),
        ),
        {
            let mut shares = [0.0; STATES];
            shares[State::Tracer as usize] = (tracer - seen_tracer).max(0.0);
            shares
        },
    );
    let all = sum(of_active(active), of_blocked(storage + wait));
    let is_rest_known = is_single && rest.iter().sum::<f64>() > 0.0;
    mixes.of[State::Unknown as usize] = normalised(if is_rest_known { rest } else { all });
    if !is_single {
        return mixes;
    }
    // Some of the unknown part may have been active; only the difference beyond it is an error.
    let slack = seen_unknown;
    let too_active = (seen_active - active - 0.0_f64).max(0.0);
    let too_blocked = (active - seen_active - slack).max(0.0);
    for state in State::ALL {
        let at = state as usize;
        if state.is_active() && seen_active > 0.0 {
            let stays = 1.0 - too_active / seen_active;
            let blocked = of_blocked(1.0);
            let blocked = if blocked.iter().sum::<f64>() > 0.0 {
                blocked
            } else {
                pure(guess)
            };
            let mut shares = if active > 0.0 {
                of_active(stays)
            } else {
                [0.0; STATES]
            };
            for (share, more) in shares.iter_mut().zip(blocked) {
                *share += more * (1.0 - stays);
            }
            mixes.of[at] = normalised(shares);
        } else if !matches!(
            state,
            State::Tracer | State::Unknown | State::Cpu | State::Queue
        ) && seen_blocked > 0.0
        {
            let goes = (too_blocked / seen_blocked).min(1.0);
            let mut shares = of_active(goes);
            shares[at] += 1.0 - goes;
            mixes.of[at] = normalised(shares);
        }
    }
    mixes
}

/// Thread time of an image of several threads, as sampled, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Threads {
    active: f64,
    blocked: f64,
}

impl Threads {
    /// Sums over its samples. `None`: there are none.
    pub(super) fn of(rows: &[SampleRow]) -> Option<Threads> {
        let mut threads = Threads::default();
        for row in rows {
            let length = (row.end_ns - row.t_ns) as f64;
            match state(row, None, || false) {
                State::Cpu | State::Queue => threads.active += length,
                State::Tracer | State::Unknown => {}
                _ => threads.blocked += length,
            }
        }
        (!rows.is_empty()).then_some(threads)
    }

    /// Corrects the mixes of the image. `seen` has the sampled time of each state, and `for_threads` the time
    /// in which no thread was seen to do anything but wait for another of its threads, ns. Returns the mixes of
    /// the latter, for waits for locks and for others: a thread that ends before it was sampled works while
    /// another one waits for its end.
    pub(super) fn correct(
        self,
        mixes: &mut Mixes,
        row: &TimesRow,
        seen: &Shares,
        for_threads: f64,
    ) -> Option<[Shares; 2]> {
        if row.threads.is_none_or(|threads| threads <= 1) {
            return None;
        }
        let counted = [row.on_cpu_ns, row.run_queue_ns, row.storage_ns, row.wait_ns];
        let [cpu, queue, storage, wait] = counted.map(|ns| ns.map(|ns| ns as f64));
        let ((cpu, queue), blocked) = (cpu.zip(queue)?, storage? + wait?);
        let hidden = for_threads + seen[State::Unknown as usize];
        // Less than that, if they ran side by side.
        let unseen = (cpu + queue - self.active).clamp(0.0, hidden);
        let active = sum_of(seen, State::is_active) + unseen;
        // Each of several threads that share a CPU is ready to run most of the time, and one runs.
        let runs = if active > 0.0 {
            (cpu / active).min(1.0)
        } else {
            0.0
        };
        let mut of_active = [0.0; STATES];
        of_active[State::Cpu as usize] = runs;
        of_active[State::Queue as usize] = 1.0 - runs;
        for state in [State::Cpu, State::Queue] {
            mixes.of[state as usize] = of_active;
        }
        if hidden <= 0.0 {
            return None;
        }
        let works = unseen / hidden;
        let waits = ((blocked - self.blocked) / hidden).clamp(0.0, 1.0 - works);
        let mix = |rest: Shares, waits: f64| {
            let mut shares = [0.0; STATES];
            for (share, more) in shares.iter_mut().zip(of_active) {
                *share += works * more;
            }
            for (share, more) in shares.iter_mut().zip(rest) {
                *share += (1.0 - works - waits) * more;
            }
            shares[State::Unknown as usize] += waits;
            shares
        };
        let mut rest = mixes.of[State::Unknown as usize];
        for state in [State::Cpu, State::Queue] {
            rest[state as usize] = 0.0;
        }
        mixes.of[State::Unknown as usize] = mix(normalised(rest), 0.0);
        Some([State::Lock, State::Sleep].map(|state| mix(pure(state), waits)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cpu: i64, queue: i64, storage: i64, wait: i64) -> TimesRow {
        TimesRow {
            on_cpu_ns: Some(cpu),
            run_queue_ns: Some(queue),
            storage_ns: Some(storage),
            wait_ns: Some(wait),
            tracer_ns: Some(0),
            thread_ns: Some(cpu + queue + storage + wait),
            threads: Some(1),
            ..TimesRow::default()
        }
    }

    fn seen(values: &[(State, f64)]) -> Shares {
        let mut shares = [0.0; STATES];
        for &(state, value) in values {
            shares[state as usize] = value;
        }
        shares
    }

    fn corrected(row: &TimesRow, seen: &Shares) -> Shares {
        let mixes = mixes(row, seen, State::Other);
        let mut sums = [0.0; STATES];
        for (at, &length) in seen.iter().enumerate() {
            for (sum, share) in sums.iter_mut().zip(mixes.of[at]) {
                *sum += share * length;
            }
        }
        sums
    }

    #[test]
    fn samples_that_saw_too_much_activity_give_way() {
        let sums = corrected(
            &row(400, 100, 0, 500),
            &seen(&[(State::Cpu, 700.0), (State::In, 300.0)]),
        );
        assert!((sums[State::Cpu as usize] - 400.0).abs() < 1e-6);
        assert!((sums[State::Queue as usize] - 100.0).abs() < 1e-6);
        assert!((sums[State::In as usize] - 500.0).abs() < 1e-6);
    }

    #[test]
    fn samples_that_saw_too_little_activity_give_way() {
        let sums = corrected(
            &row(600, 0, 0, 400),
            &seen(&[(State::Cpu, 200.0), (State::Out, 800.0)]),
        );
        assert!((sums[State::Cpu as usize] - 600.0).abs() < 1e-6);
        assert!((sums[State::Out as usize] - 400.0).abs() < 1e-6);
    }

    #[test]
    fn without_samples_only_the_accounting_is_known() {
        let sums = corrected(&row(10, 20, 30, 40), &seen(&[(State::Unknown, 100.0)]));
        let expected = [
            (State::Cpu, 10.0),
            (State::Queue, 20.0),
            (State::File, 30.0),
            (State::Other, 40.0),
        ];
        for (state, value) in expected {
            assert!((sums[state as usize] - value).abs() < 1e-6, "{state:?}");
        }
        let unknown = corrected(&TimesRow::default(), &seen(&[(State::Unknown, 7.0)]));
        assert!((unknown[State::Unknown as usize] - 7.0).abs() < 1e-6);
    }

    #[test]
    fn a_part_without_samples_is_what_they_leave_of_the_accounting() {
        let sums = corrected(
            &row(500, 0, 0, 500),
            &seen(&[(State::In, 500.0), (State::Unknown, 500.0)]),
        );
        assert!((sums[State::Cpu as usize] - 500.0).abs() < 1e-6, "{sums:?}");
        assert!((sums[State::In as usize] - 500.0).abs() < 1e-6);
    }
}
