//! The operations of file calls. `sql/operations.sql` is the same list for SQL clients; a test
//! compares both, in both directions.

/// The effect of an operation, the grouping used by views and analyses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Makes an open file.
    Open,
    /// Ends an open file or descriptor.
    Close,
    /// Moves data out of a file.
    Read,
    /// Changes a file's data.
    Write,
    /// Changes names.
    Namespace,
    /// Reads or changes attributes.
    Attribute,
    /// Lists names.
    Directory,
    /// Forces data to storage.
    Sync,
    /// Takes or tests a lock.
    Lock,
    /// Anything else.
    Control,
}

macro_rules! operations {
    ($($number:literal $variant:ident $name:literal $class:ident,)*) => {
        /// An operation of a file call; the meaning of each is in `sql/operations.sql`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Op {
            $(#[doc = concat!("`", $name, "`")] $variant = $number,)*
        }

        impl Op {
            /// All operations in the order of their numbers.
            pub const ALL: &'static [Op] = &[$(Op::$variant),*];

            /// Name shown by the view `operations`.
            pub const fn name(self) -> &'static str {
                match self { $(Op::$variant => $name),* }
            }

            /// The effect of the operation.
            pub const fn class(self) -> Class {
                match self { $(Op::$variant => Class::$class),* }
            }
        }
    };
}

operations! {
    1 Lookup "lookup" Attribute,
    2 Getattr "getattr" Attribute,
    3 Chmod "chmod" Attribute,
    4 Chown "chown" Attribute,
    5 Truncate "truncate" Write,
    6 Utimens "utimens" Attribute,
    7 Readlink "readlink" Attribute,
    8 Mknod "mknod" Namespace,
    9 Mkdir "mkdir" Namespace,
    10 Unlink "unlink" Namespace,
    11 Rmdir "rmdir" Namespace,
    12 Symlink "symlink" Namespace,
    13 Rename "rename" Namespace,
    14 Link "link" Namespace,
    15 Open "open" Open,
    16 Create "create" Open,
    17 Read "read" Read,
    18 Write "write" Write,
    19 Flush "flush" Close,
    20 Release "release" Close,
    21 Fsync "fsync" Sync,
    22 Opendir "opendir" Directory,
    23 Readdir "readdir" Directory,
    24 Releasedir "releasedir" Directory,
    25 Fsyncdir "fsyncdir" Sync,
    26 Statfs "statfs" Attribute,
    27 Setxattr "setxattr" Attribute,
    28 Getxattr "getxattr" Attribute,
    29 Listxattr "listxattr" Attribute,
    30 Removexattr "removexattr" Attribute,
    31 Access "access" Attribute,
    32 Getlk "getlk" Lock,
    33 Setlk "setlk" Lock,
    34 Flock "flock" Lock,
    35 Lseek "lseek" Control,
    36 Fallocate "fallocate" Write,
    37 CopyFrom "copy_from" Read,
    38 CopyTo "copy_to" Write,
    39 Ioctl "ioctl" Control,
    40 Poll "poll" Control,
    41 Setattr "setattr" Attribute,
    42 Mmap "mmap" Control,
}

impl Op {
    /// The operation of a number of the table `operation`; `None`: an operation of a later version.
    pub fn from_number(number: u8) -> Option<Op> {
        let op = Op::ALL.get(usize::from(number).checked_sub(1)?)?;
        (*op as u8 == number).then_some(*op)
    }
}

impl Class {
    /// Name shown by the view `operations`.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Open => "open",
            Class::Close => "close",
            Class::Read => "read",
            Class::Write => "write",
            Class::Namespace => "namespace",
            Class::Attribute => "attribute",
            Class::Directory => "directory",
            Class::Sync => "sync",
            Class::Lock => "lock",
            Class::Control => "control",
        }
    }
}

/// The table `call` has six bits for the operation.
const _: () = assert!((Op::ALL[Op::ALL.len() - 1] as u8) < 64);

/// How exactly a row stands for a call of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Fidelity {
    /// The call as the application made it.
    Exact = 0,
    /// The page cache filling itself.
    Cached = 1,
    /// The kernel writing back pages changed earlier.
    Writeback = 2,
    /// Known only because the file was opened.
    Open = 3,
    /// A call as it was made, but its position and file may be wrong: an earlier event was lost.
    Lossy = 4,
}

/// The table `call` has three bits for the fidelity: two beside the operation, and one above the flags.
pub(crate) const HIGH_FIDELITY_SHIFT: u32 = 46;
/// Mask of the flags plus 1 in the table `call`, 33 bits.
pub(crate) const FLAGS_MASK: i64 = (1 << 33) - 1;

/// The flags of a row of `call`, from its column `what`.
pub(crate) fn flags_of_what(what: i64) -> Option<i64> {
    (what >> 8 & FLAGS_MASK)
        .checked_sub(1)
        .filter(|&flags| flags >= 0)
}

impl Fidelity {
    /// All labels in the order of their numbers.
    pub const ALL: &'static [Fidelity] = &[
        Fidelity::Exact,
        Fidelity::Cached,
        Fidelity::Writeback,
        Fidelity::Open,
        Fidelity::Lossy,
    ];

    /// The fidelity of a row of `call`, from its column `what`.
    pub(crate) fn of_what(what: i64) -> Fidelity {
        let number = what >> 6 & 3 | what >> HIGH_FIDELITY_SHIFT & 4;
        let known = Fidelity::ALL.get(number as usize);
        known.copied().unwrap_or(Fidelity::Lossy)
    }

    /// Name shown by the view `fidelities`.
    pub const fn name(self) -> &'static str {
        match self {
            Fidelity::Exact => "exact",
            Fidelity::Cached => "cached",
            Fidelity::Writeback => "writeback",
            Fidelity::Open => "open",
            Fidelity::Lossy => "lossy",
        }
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::FileKind;

    fn rows(sql: &str) -> Vec<(i64, String, String)> {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(include_str!("../sql/tables.sql")).unwrap();
        db.execute_batch(include_str!("../sql/operations.sql"))
            .unwrap();
        let mut statement = db.prepare(sql).unwrap();
        let rows = statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)));
        rows.unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn operations_in_sql_and_rust_are_the_same_list() {
        let ours: Vec<_> = Op::ALL
            .iter()
            .map(|op| {
                (
                    *op as i64,
                    op.name().to_owned(),
                    op.class().name().to_owned(),
                )
            })
            .collect();
        assert_eq!(
            rows("SELECT op, name, class FROM operation ORDER BY op"),
            ours
        );
    }

    #[test]
    fn file_kinds_in_sql_and_rust_are_the_same_list() {
        let ours: Vec<_> = FileKind::ALL
            .iter()
            .map(|kind| (*kind as i64, kind.name().to_owned(), String::new()))
            .collect();
        assert_eq!(
            rows("SELECT kind, name, '' FROM file_kind ORDER BY kind"),
            ours
        );
    }

    #[test]
    fn fidelities_in_sql_and_rust_are_the_same_list() {
        let ours: Vec<_> = Fidelity::ALL
            .iter()
            .map(|f| (*f as i64, f.name().to_owned(), String::new()))
            .collect();
        assert_eq!(
            rows("SELECT fidelity, name, '' FROM fidelity ORDER BY fidelity"),
            ours
        );
    }
}
