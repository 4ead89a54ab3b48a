//! Checks the chain of the audit, in portions, so that no change has to wait for it.

use sqlx::AssertSqlSafe;

use super::{COLUMNS, Chain, EntryRow, HeadRow, StoredEntry, values};
use crate::check;
use crate::db::on;
use crate::{OpenOptions, OpenStoreError, Store, StoreError};
use model::AuditHead;
use seal::PurposeSeal;

/// How many entries are checked in one transaction.
const PORTION: i64 = 500;

/// The result of a check of the audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditReport {
    /// The newest entry.
    pub head: AuditHead,
    /// The newest entry that was deleted because of its age; number 0 if there is none.
    pub anchor: AuditHead,
    /// How many entries were found right.
    pub entries: u64,
    /// The first thing that is wrong.
    pub problem: Option<AuditProblem>,
}

/// What is wrong with the audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditProblem {
    /// The number of the entry.
    pub number: i64,
    pub reason: String,
}

/// Checks the audit of a database. A gateway may be running on it.
pub async fn verify_audit(
    options: &OpenOptions,
    noted: Option<AuditHead>,
) -> Result<AuditReport, OpenStoreError> {
    let store = check::open_to_read(options).await?;
    let verified = store.verify_audit(noted).await;
    store.close().await;
    verified.map_err(|cause| OpenStoreError::Content { database: options.database.to_string(), cause })
}

impl Store {
    /// Checks that no entry was removed, altered or moved, and that an entry that somebody noted is among them.
    pub async fn verify_audit(&self, noted: Option<AuditHead>) -> Result<AuditReport, StoreError> {
        const COUNT: &str = "SELECT COUNT(*) FROM audit";
        let sql = format!("SELECT {COLUMNS} FROM audit WHERE number > $1 ORDER BY number LIMIT $2");
        let values = values(&self.seal);
        let mut walk = Walk { noted, ..Walk::default() };
        loop {
            let mut tx = self.read().await?;
            let Some(row) = HeadRow::read(&mut tx).await? else {
                let count: i64 = on!(&mut tx, |db| sqlx::query_scalar(COUNT).fetch_one(db).await)?;
                tx.commit().await?;
                if count > 0 {
                    walk.fail(1, "the head of the audit is missing");
                }
                return Ok(walk.finish(AuditHead::default()));
            };
            let after = walk.last.number.max(row.anchor_number);
            let rows: Vec<EntryRow> = on!(&mut tx, |db| {
                let query = sqlx::query_as(AssertSqlSafe(sql.as_str())).bind(after).bind(PORTION);
                query.fetch_all(db).await
            })?;
            tx.commit().await?;
            let is_last = rows.len() < usize::try_from(PORTION).unwrap_or(usize::MAX);
            let chain = Chain::open(&self.seal, &row.chain_key)?;
            let head = row.head()?;
            if !walk.begin(&row, &chain) || !walk.pass(rows, &chain, &values) {
                return Ok(walk.finish(head));
            }
            if is_last {
                if walk.last.number < head.number {
                    walk.fail(walk.last.number + 1, "it is missing");
                } else if walk.last != head {
                    walk.fail(walk.last.number, "it is not the one that was written last");
                }
                return Ok(walk.finish(head));
            }
        }
    }
}

/// The part of the chain that was checked.
#[derive(Default)]
struct Walk {
    /// The last entry that was found right, or the anchor.
    last: AuditHead,
    anchor: AuditHead,
    entries: u64,
    noted: Option<AuditHead>,
    is_noted_found: bool,
    problem: Option<AuditProblem>,
}

impl Walk {
    /// Begins at the anchor, or goes on from there if entries that were not checked yet have been deleted meanwhile.
    fn begin(&mut self, row: &HeadRow, chain: &Chain) -> bool {
        let Some(anchor) = row.anchor(chain) else {
            self.fail(row.anchor_number, "entries up to this one were deleted, and not by a gateway");
            return false;
        };
        self.anchor = anchor;
        if self.last.number <= anchor.number {
            self.last = anchor;
            self.look_for_noted();
        }
        true
    }

    fn pass(&mut self, rows: Vec<EntryRow>, chain: &Chain, values: &PurposeSeal) -> bool {
        for row in rows {
            let expected = self.last.number + 1;
            if row.0 != expected {
                self.fail(expected, "it is missing");
                return false;
            }
            match StoredEntry::read(row, values).and_then(|stored| stored.follows(&self.last, chain)) {
                Ok(last) => self.last = last,
                Err(reason) => {
                    self.fail(expected, reason);
                    return false;
                }
            }
            self.entries += 1;
            self.look_for_noted();
        }
        true
    }

    fn look_for_noted(&mut self) {
        self.is_noted_found |= self.noted == Some(self.last);
    }

    fn fail(&mut self, number: i64, reason: &str) {
        self.problem.get_or_insert(AuditProblem { number, reason: reason.to_owned() });
    }

    fn finish(mut self, head: AuditHead) -> AuditReport {
        if let Some(noted) = self.noted.filter(|_| !self.is_noted_found) {
            let reason = if noted.number > head.number {
                "it was noted, and is not there any more: the chain ends before it"
            } else if noted.number < self.anchor.number {
                "it was noted, and has been deleted because of its age"
            } else {
                "it is another one than the one that was noted"
            };
            self.fail(noted.number, reason);
        }
        AuditReport { head, anchor: self.anchor, entries: self.entries, problem: self.problem }
    }
}
