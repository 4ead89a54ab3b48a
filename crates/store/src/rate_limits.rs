//! The column `rate_limit` of users and clients: a limit as JSON, or NULL for none.

use model::RateLimit;

pub(super) fn to_column(limit: Option<RateLimit>) -> Option<String> {
    limit.map(|limit| serde_json::to_string(&limit).expect("two numbers can be serialized"))
}

/// Reads a limit. The error is a sentence fragment that says what is wrong with it.
pub(super) fn read(column: Option<&str>) -> Result<Option<RateLimit>, String> {
    let parse = |text| {
        let object =
            serde_json::from_str(text).map_err(|_| "its rate limit is not a JSON object".to_owned())?;
        RateLimit::parse(object).map_err(|error| format!("its rate limit: {error}"))
    };
    column.map(parse).transpose()
}
