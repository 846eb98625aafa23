//! The activities of a sampled thread. `sql/activities.sql` is the same list for SQL clients, with the
//! meanings; a test compares both, in both directions.

macro_rules! activities {
    ($($number:literal $variant:ident $state:literal $reason:expr,)*) => {
        /// The activity of a thread; the meaning of each is in `sql/activities.sql`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        #[repr(u8)]
        pub enum Activity {
            $(#[doc = concat!("`", $state, "`, number ", $number)] $variant = $number,)*
        }

        impl Activity {
            /// All of them in the order of their numbers.
            pub const ALL: &'static [Activity] = &[$(Activity::$variant),*];

            /// Name of the state shown by the view `samples`.
            pub const fn state(self) -> &'static str {
                match self { $(Activity::$variant => $state),* }
            }

            /// The reason for which a blocked thread waits; `None`: the thread is not blocked.
            pub const fn reason(self) -> Option<&'static str> {
                match self { $(Activity::$variant => $reason),* }
            }
        }
    };
}

activities! {
    0 Running "running" None,
    1 Runnable "runnable" None,
    2 Channel "blocked" Some("channel"),
    3 Terminal "blocked" Some("terminal"),
    4 File "blocked" Some("file"),
    5 Fault "blocked" Some("fault"),
    6 Child "blocked" Some("child"),
    7 Lock "blocked" Some("lock"),
    8 Sleep "blocked" Some("sleep"),
    9 Signal "blocked" Some("signal"),
    10 Event "blocked" Some("event"),
    11 Other "blocked" Some("other"),
    12 Stopped "stopped" None,
    13 Tracer "tracer" None,
}

impl Activity {
    /// True if the thread neither runs, nor wants to run, nor is stopped by the tracer.
    pub const fn is_waiting(self) -> bool {
        !matches!(
            self,
            Activity::Running | Activity::Runnable | Activity::Tracer
        )
    }

    /// The activity that rows of `sample` name by this number.
    pub fn of_number(number: i64) -> Option<Activity> {
        let place = usize::try_from(number).ok()?;
        Activity::ALL.get(place).copied()
    }

    /// True if the thread does something itself: it is on a CPU, ready to be, or in storage.
    pub const fn is_at_work(self) -> bool {
        matches!(self, Activity::Running | Activity::Runnable) || self.is_storage()
    }

    /// True if the thread waits for storage.
    pub const fn is_storage(self) -> bool {
        matches!(self, Activity::File | Activity::Fault)
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::contract;

    #[test]
    fn the_table_holds_the_same_list() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(contract::TABLES).unwrap();
        db.execute_batch(contract::ACTIVITIES).unwrap();
        let mut rows = db
            .prepare("SELECT activity, state, reason, storage FROM activity ORDER BY activity")
            .unwrap();
        let rows = rows.query_map([], |r| {
            Ok((
                r.get::<_, u8>(0)?,
                r.get::<_, String>(1)?,
                r.get::<_, Option<String>>(2)?,
                r.get::<_, bool>(3)?,
            ))
        });
        let rows: Vec<_> = rows.unwrap().map(Result::unwrap).collect();
        let ours: Vec<_> = Activity::ALL
            .iter()
            .map(|&a| {
                let reason = a.reason().map(str::to_owned);
                (a as u8, a.state().to_owned(), reason, a.is_storage())
            })
            .collect();
        assert_eq!(rows, ours);
    }
}
