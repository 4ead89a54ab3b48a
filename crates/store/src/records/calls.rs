//! The table `calls`: one row for each call.

use sqlx::AssertSqlSafe;

use super::{Records, parts, placeholders};
use crate::StoreError;
use crate::db::{Tx, on};
use crate::replicas::now_ms;
use model::{CallRecord, PrincipalId};
use seal::PurposeSeal;

const COLUMNS: usize = 14;
/// What the other columns and the indexes of a call take, roughly.
const OVERHEAD: i64 = 300;
/// How many new calls of other gateways are read at once; of more, the newest.
const MOST_NEW: i64 = 1000;

/// A call, with its arguments and its result if they are kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallRow {
    pub record: CallRecord,
    pub arguments: Option<Vec<u8>>,
    pub result: Option<Vec<u8>>,
}

/// A call that was read, with what was kept of its arguments and its result.
pub type KeptCall = CallRow;

/// Which calls are wanted. Empty texts fit everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallFilter {
    pub server: String,
    pub name: String,
    /// The name of a user or client.
    pub principal: String,
    /// Only the calls of this user or client, whatever it was called.
    pub owner: Option<PrincipalId>,
    pub outcome: String,
    pub via: String,
    /// Milliseconds since 1970, both included.
    pub since_ms: Option<i64>,
    pub until_ms: Option<i64>,
    /// A part of any text of a record, whatever its case.
    pub text: String,
    /// Only calls with smaller ids.
    pub before: String,
    /// The most that are returned.
    pub limit: u32,
}

impl CallFilter {
    /// Whether a call that has just ended fits.
    pub fn fits(&self, record: &CallRecord) -> bool {
        let is = |wanted: &str, known: &str| wanted.is_empty() || wanted == known;
        is(&self.server, &record.server)
            && is(&self.name, &record.name)
            && is(&self.principal, &record.principal.name)
            && self.owner.is_none_or(|owner| record.principal.is(owner))
            && is(&self.outcome, &record.outcome)
            && is(&self.via, &record.via)
            && self.since_ms.is_none_or(|since| record.at_ms >= since)
            && self.until_ms.is_none_or(|until| record.at_ms <= until)
            && (self.text.is_empty() || searched(record).contains(&self.text.to_lowercase()))
    }

    /// The statement that selects their records, newest first, and what is bound to it.
    pub(crate) fn query(&self) -> (String, Vec<Bound>) {
        let (mut conditions, mut values) = (Vec::new(), Vec::new());
        let mut add = |condition: &str, value: Bound| {
            values.push(value);
            conditions.push(condition.replace('?', &format!("${}", values.len())));
        };
        let texts = [
            ("server = ?", &self.server),
            ("name = ?", &self.name),
            ("principal = ?", &self.principal),
            // The indexes of calls that failed and of owners have only some rows, so a query must say that it wants only those.
            (
                if self.outcome == "ok" { "outcome = ?" } else { "outcome = ? AND outcome <> 'ok'" },
                &self.outcome,
            ),
            ("via = ?", &self.via),
            ("id < ?", &self.before),
        ];
        for (condition, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            add(condition, Bound::Text(text.clone()));
        }
        let owner = self.owner.map(|owner| owner.0.cast_signed());
        for (condition, number) in [
            ("at >= ?", self.since_ms),
            ("at <= ?", self.until_ms),
            ("principal_id = ? AND principal_id <> 0", owner),
        ] {
            if let Some(number) = number {
                add(condition, Bound::Number(number));
            }
        }
        if !self.text.is_empty() {
            let escaped =
                self.text.to_lowercase().replace('\\', r"\\").replace('%', r"\%").replace('_', r"\_");
            add(r"searched LIKE ? ESCAPE '\'", Bound::Text(format!("%{escaped}%")));
        }
        let mut sql = "SELECT record FROM calls".to_owned();
        if !conditions.is_empty() {
            sql += " WHERE ";
            sql += &conditions.join(" AND ");
        }
        sql += &format!(" ORDER BY id DESC LIMIT {}", self.limit);
        (sql, values)
    }
}

/// The texts of a record that a search looks at, in lower case.
fn searched(record: &CallRecord) -> String {
    let error = record.error.as_deref().unwrap_or_default();
    let detail = record.detail.as_deref().unwrap_or_default();
    [&record.server, &record.name, &record.principal.name, &record.agent, &record.endpoint, error, detail]
        .map(|text: &str| text)
        .join("\n")
        .to_lowercase()
}

pub(crate) enum Bound {
    Text(String),
    Number(i64),
}

impl Records {
    /// The calls that fit, newest first.
    pub async fn calls(&self, filter: &CallFilter) -> Result<Vec<CallRecord>, StoreError> {
        let (sql, values) = filter.query();
        let mut tx = self.read().await?;
        let rows: Vec<String> = on!(&mut tx, |db| {
            let mut query = sqlx::query_scalar(AssertSqlSafe(sql.clone()));
            for value in &values {
                query = match value {
                    Bound::Text(text) => query.bind(text),
                    Bound::Number(number) => query.bind(number),
                };
            }
            query.fetch_all(db).await
        })?;
        tx.commit().await?;
        rows.iter().map(|row| parse(row)).collect()
    }

    /// The greatest id of all calls.
    pub async fn newest_id(&self) -> Result<Option<String>, StoreError> {
        const SQL: &str = "SELECT MAX(id) FROM calls";
        let mut tx = self.read().await?;
        let id = on!(&mut tx, |db| sqlx::query_scalar(SQL).fetch_one(db).await)?;
        tx.commit().await?;
        Ok(id)
    }

    pub async fn call(&self, id: &str) -> Result<Option<KeptCall>, StoreError> {
        const SQL: &str = "SELECT record, arguments, result FROM calls WHERE id = $1";
        let mut tx = self.read().await?;
        let row: Option<(String, Vec<u8>, Vec<u8>)> =
            on!(&mut tx, |db| sqlx::query_as(SQL).bind(id).fetch_optional(db).await)?;
        tx.commit().await?;
        let Some((record, arguments, result)) = row else { return Ok(None) };
        // What was sealed under a key that has been replaced since is not shown.
        let open = |sealed: Vec<u8>| self.seal.open(&sealed).ok().map(|plain| plain.to_vec());
        Ok(Some(CallRow { record: parse(&record)?, arguments: open(arguments), result: open(result) }))
    }

    /// The calls that were written after a time of the database server, each with that time, or with a later one if there are
    /// too many. Without a time, there are no calls: only the time that it is now. `None` if no other gateway writes here.
    pub async fn written_after(
        &self,
        time: Option<i64>,
    ) -> Result<Option<(Vec<(CallRecord, i64)>, i64)>, StoreError> {
        const NOW: &str = concat!("SELECT ", now_ms!());
        const SQL: &str =
            "SELECT record, written FROM calls WHERE written > $1 ORDER BY written DESC LIMIT $2";
        if !self.is_shared() {
            return Ok(None);
        }
        let mut tx = self.read().await?;
        let now: i64 = on!(&mut tx, |db| sqlx::query_scalar(NOW).fetch_one(db).await)?;
        let rows: Vec<(String, i64)> = match time {
            Some(time) => {
                on!(&mut tx, |db| sqlx::query_as(SQL).bind(time).bind(MOST_NEW).fetch_all(db).await)?
            }
            None => Vec::new(),
        };
        tx.commit().await?;
        let calls = rows.iter().rev().map(|(record, written)| Ok((parse(record)?, *written)));
        Ok(Some((calls.collect::<Result<_, StoreError>>()?, now)))
    }

    /// Adds calls. One whose id is known was written by an attempt whose outcome was unknown.
    pub(super) async fn add_calls(&self, tx: &mut Tx, rows: &[CallRow]) -> Result<(), StoreError> {
        const INSERT: &str =
            "INSERT INTO calls (id, at, server, name, principal, principal_kind, principal_id, outcome, via,
            weight, searched, record, arguments, result, written) VALUES ";
        const UPDATE: &str = " ON CONFLICT (id) DO UPDATE SET server = excluded.server, name = excluded.name,
            outcome = excluded.outcome, weight = excluded.weight, searched = excluded.searched,
            record = excluded.record, arguments = excluded.arguments, result = excluded.result";
        let now = if self.is_shared() { now_ms!() } else { "0" };
        for chunk in parts(rows) {
            let written: Vec<_> = chunk.iter().map(|row| WrittenCall::of(row, &self.seal)).collect();
            let sql = [INSERT, &placeholders(chunk.len(), COLUMNS, now, self.is_shared()), UPDATE].concat();
            on!(&mut *tx, |db| {
                let mut query = sqlx::query(AssertSqlSafe(sql.clone()));
                for (CallRow { record, .. }, written) in chunk.iter().zip(&written) {
                    query = query.bind(&record.id).bind(record.at_ms).bind(&record.server).bind(&record.name);
                    query = query.bind(&record.principal.name).bind(&record.principal.kind);
                    query = query.bind(record.principal.id.cast_signed());
                    query = query.bind(&record.outcome).bind(&record.via).bind(written.weight());
                    query = query.bind(&written.searched).bind(&written.record);
                    query = query.bind(&written.arguments).bind(&written.result);
                }
                query.execute(db).await.map(|_| ())
            })?;
        }
        Ok(())
    }
}

/// The columns of a call that are made of its record and contents.
struct WrittenCall {
    searched: String,
    record: String,
    arguments: Vec<u8>,
    result: Vec<u8>,
}

impl WrittenCall {
    fn of(row: &CallRow, seal: &PurposeSeal) -> Self {
        let sealed =
            |plain: &Option<Vec<u8>>| plain.as_ref().map(|plain| seal.seal(plain)).unwrap_or_default();
        Self {
            searched: searched(&row.record),
            record: serde_json::to_string(&row.record).expect("a record has only texts and numbers"),
            arguments: sealed(&row.arguments),
            result: sealed(&row.result),
        }
    }

    /// About how much room it takes.
    fn weight(&self) -> i64 {
        let bytes = self.searched.len() + self.record.len() + self.arguments.len() + self.result.len();
        i64::try_from(bytes).unwrap_or(i64::MAX).saturating_add(OVERHEAD)
    }
}

fn parse(record: &str) -> Result<CallRecord, StoreError> {
    serde_json::from_str(record).map_err(|error| StoreError::Corrupt(format!("a record of a call: {error}")))
}
