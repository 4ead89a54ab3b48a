//! Compares texts with files in `tests/it/snapshots`. With `UPDATE_SNAPSHOTS=1` the file is written instead; review the
//! difference before you commit it.

use std::path::Path;

#[track_caller]
pub fn compare(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots").join(name);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    for (number, (line, expected)) in text.lines().zip(expected.lines()).enumerate() {
        assert_eq!(line, expected, "{name}, line {}; UPDATE_SNAPSHOTS=1 accepts it", number + 1);
    }
    let (lines, expected) = (text.lines().count(), expected.lines().count());
    assert_eq!(lines, expected, "{name} has another length; UPDATE_SNAPSHOTS=1 accepts it");
}
