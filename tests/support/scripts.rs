//! Shell scripts that use files in many ways, for more than one test.

/// A repository of git with this number of files, and another one with this number of lines: committed, merged, packed
/// and cloned.
pub(crate) fn git(files: u32, lines: u32) -> String {
    format!("FILES={files} LINES={lines}\n{GIT}")
}

/// Databases of sqlite3 with these modes of the journal, with and without memory mappings.
pub(crate) fn sqlite(modes: &str) -> String {
    format!("MODES='{modes}'\n{SQLITE}")
}

const GIT: &str = r#"
    export HOME="$PWD" GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_DATE=@1000000000 GIT_COMMITTER_DATE=@1000000000
    git init -q -b main work
    cd work
    git config user.name nobody
    git config user.email nobody@localhost
    for n in $(seq $FILES); do
      mkdir -p d$((n % 7))
      seq $n $((n + n % 50)) > d$((n % 7))/file.$n
    done
    seq $LINES > large
    git add .
    git commit -q -m first
    git checkout -q -b other
    for n in $(seq 1 9 $FILES); do echo more >> d$((n % 7))/file.$n; done
    git rm -q d3/file.3
    git commit -q -a -m second
    git checkout -q main
    git merge -q other
    git gc -q
    git fsck
    cd ..
    git clone -q --local work copy
    git -C copy log -p > log
"#;

const SQLITE: &str = r#"
    for mode in $MODES; do
      for mapped in 0 100000000; do
        base=$mode.$mapped
        sqlite3 $base "PRAGMA journal_mode=$mode; PRAGMA mmap_size=$mapped;
          CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);
          WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 500)
            INSERT INTO t SELECT x, hex(zeroblob(x % 300)) FROM n;
          CREATE INDEX i ON t(b);"
        sqlite3 $base "PRAGMA mmap_size=$mapped; UPDATE t SET b = b || a WHERE a % 3 = 0;
          DELETE FROM t WHERE a > 400; SELECT COUNT(*), SUM(LENGTH(b)) FROM t;"
        sqlite3 $base "PRAGMA mmap_size=$mapped; VACUUM; PRAGMA integrity_check;"
      done
    done > results
"#;
