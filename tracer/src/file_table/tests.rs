//! Tests of the identity of inodes.

use super::*;

#[test]
fn an_inode_number_of_another_generation_is_another_file() {
    let table = FileTable::new(Recorder::nowhere());
    let reported = |generation| Attributes {
        generation,
        ..Attributes::reported((1, 7), libc::S_IFREG, 0)
    };
    let opened = |generation, path: &str| {
        table.opened(
            &reported(generation),
            OsStr::new(path),
            Coverage::Open,
            HostId(1),
            0,
        )
    };
    let (journal, log) = (opened(Some(3), "/journal"), opened(Some(4), "/log"));
    assert_ne!(journal, log);
    assert_eq!(opened(Some(3), "/journal"), journal);
    assert_eq!(table.known_inode(&reported(Some(4))), Some(log));
    // If none is known, the number decides.
    let unknown = opened(None, "/x");
    assert_eq!(opened(None, "/y"), unknown);
    table.forget_inode(&reported(None));
    assert_ne!(opened(None, "/z"), unknown);
}

#[test]
fn an_inode_may_be_a_file_that_is_known_already() {
    let table = FileTable::new(Recorder::nowhere());
    let reported = Attributes {
        generation: Some(3),
        ..Attributes::reported((1, 7), libc::S_IFREG, 0)
    };
    let with_birth = Attributes {
        generation: None,
        birth: Some(crate::stat::Time::default()),
        ..reported
    };
    let file = table.opened(&with_birth, OsStr::new("/x"), Coverage::Open, HostId(1), 0);
    assert_eq!(table.known_inode(&reported), None);
    table.is_also(&reported, file);
    assert_eq!(table.known_inode(&reported), Some(file));
}
