//! The column `allow_list`: a list as a JSON array of its entries.

use model::AllowList;

pub(super) fn to_column(list: &AllowList) -> String {
    serde_json::to_string(list.entries()).expect("a list of strings can be serialized")
}

/// Reads a list. The error is a sentence fragment that says what is wrong with it.
pub(super) fn read(column: &str) -> Result<AllowList, String> {
    let entries = serde_json::from_str(column);
    entries.map(AllowList::new).map_err(|_| "its allow list is not a JSON array of strings".to_owned())
}
