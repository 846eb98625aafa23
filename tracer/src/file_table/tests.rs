//! Which inode is which file.

use super::*;

#[test]
fn an_inode_number_of_another_generation_is_another_file() {
    let table = FileTable::new(Recorder::nowhere());
    let told = |generation| Attributes {
        generation,
        ..Attributes::told((1, 7), libc::S_IFREG, 0)
    };
    let opened =
        |generation, path: &str| table.opened(&told(generation), OsStr::new(path), HostId(1), 0);
    let (journal, log) = (opened(Some(3), "/journal"), opened(Some(4), "/log"));
    assert_ne!(journal, log);
    assert_eq!(opened(Some(3), "/journal"), journal);
    assert_eq!(table.known_inode(&told(Some(4))), Some(log));
    // Where none is known, the number must do.
    let unknown = opened(None, "/x");
    assert_eq!(opened(None, "/y"), unknown);
    table.forget_inode(&told(None));
    assert_ne!(opened(None, "/z"), unknown);
}

#[test]
fn an_inode_may_be_a_file_that_is_known_already() {
    let table = FileTable::new(Recorder::nowhere());
    let told = Attributes {
        generation: Some(3),
        ..Attributes::told((1, 7), libc::S_IFREG, 0)
    };
    let looked_at = Attributes {
        generation: None,
        birth: Some(crate::stat::Time::default()),
        ..told
    };
    let file = table.opened(&looked_at, OsStr::new("/x"), HostId(1), 0);
    assert_eq!(table.known_inode(&told), None);
    table.is_also(&told, file);
    assert_eq!(table.known_inode(&told), Some(file));
}
