//! Writes the Montage sample to a file, to read outputs by hand:
//! `SAMPLE=/tmp/m.db cargo test -p flowtrace-profiler --test make_montage`.

#[path = "support/montage.rs"]
mod montage;

#[test]
fn the_sample_can_be_written() {
    let Some(path) = std::env::var_os("SAMPLE") else {
        let (directory, path) = montage::montage_file(2, false);
        assert!(path.exists());
        drop(directory);
        return;
    };
    montage::montage(path.as_ref(), 9, false);
}
