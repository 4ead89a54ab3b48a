//! The tables `audit` and `audit_head`: an entry for each change, written in the transaction of the change. All gateways on a
//! database write one chain; the row `audit_head` orders them.

mod chain;
mod retention;
mod search;
mod verification;

use serde_json::Value;

use super::db::{Tx, on};
use super::{Store, StoreError};
use chain::{Chain, values};
use model::audit::{Actor, ActorKind};
use model::{AuditEntry, AuditHead, AuditNote, AuditOutcome, By};
use seal::{PurposeSeal, Seal};

pub(super) use chain::{key_purpose, value_purpose};
pub use search::AuditFilter;
pub use verification::{AuditProblem, AuditReport, verify_audit};

/// The name of the only row of `audit_head`.
const NAME: &str = "audit";

impl Store {
    /// Notes what is not a change of the database itself, such as refused requests.
    pub async fn note(&self, notes: &[AuditNote]) -> Result<(), StoreError> {
        let mut tx = self.write().await?;
        append(&mut tx, &self.seal, notes).await?;
        tx.commit().await
    }

    /// The newest entry; number 0 before the first one.
    pub async fn audit_head(&self) -> Result<AuditHead, StoreError> {
        let mut tx = self.read().await?;
        let head = HeadRow::read(&mut tx).await?;
        tx.commit().await?;
        head.map_or(Ok(AuditHead::default()), |head| head.head())
    }
}

/// Adds entries at the end of the chain. The first statement of a transaction that locks anything but the epoch, so that two
/// transactions never wait for each other.
pub(super) async fn append(tx: &mut Tx, seal: &Seal, notes: &[AuditNote]) -> Result<(), StoreError> {
    const INSERT: &str = "INSERT INTO audit (number, at, actor_kind, actor, action, target, before_value,
        after_value, outcome, address, count, hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    const FINISH: &str = "UPDATE audit_head SET hash = $2 WHERE name = $1";
    let count = i64::try_from(notes.len()).unwrap_or(i64::MAX);
    let (last, sealed_key) = match advance(tx, count).await? {
        Some(advanced) => advanced,
        None => {
            begin_chain(tx, seal).await?;
            let missing = || StoreError::Corrupt("the audit has no head".into());
            advance(tx, count).await?.ok_or_else(missing)?
        }
    };
    let (chain, values) = (Chain::open(seal, &sealed_key)?, values(seal));
    let AuditHead { number, mut hash } = last;
    for (number, note) in (number + 1..).zip(notes) {
        let entry = AuditEntry { number, note: storable(note) };
        let (before, after) = (json(&entry.note.before), json(&entry.note.after));
        hash = chain.hash(&hash, &entry, &before, &after);
        let sealed = |plain: &[u8]| if plain.is_empty() { Vec::new() } else { values.seal(plain) };
        let (before, after) = (sealed(&before), sealed(&after));
        let AuditNote { at_ms, by, action, target, outcome, count, .. } = &entry.note;
        on!(&mut *tx, |db| {
            let query = sqlx::query(INSERT).bind(number).bind(at_ms);
            let query = query.bind(by.actor.kind.as_str()).bind(&by.actor.name).bind(action).bind(target);
            let query = query.bind(&before).bind(&after).bind(outcome.as_str()).bind(&by.address);
            let query = query.bind(i64::try_from(*count).unwrap_or(i64::MAX)).bind(&hash[..]);
            query.execute(db).await.map(|_| ())
        })?;
    }
    on!(tx, |db| sqlx::query(FINISH).bind(NAME).bind(&hash[..]).execute(db).await.map(|_| ()))?;
    Ok(())
}

/// Reserves numbers for entries. Returns the last entry before them and the sealed key; `None` before the first entry.
async fn advance(tx: &mut Tx, count: i64) -> Result<Option<(AuditHead, Vec<u8>)>, StoreError> {
    const SQL: &str = "UPDATE audit_head SET number = number + $2 WHERE name = $1
        RETURNING number, hash, chain_key";
    let row: Option<(i64, Vec<u8>, Vec<u8>)> =
        on!(tx, |db| sqlx::query_as(SQL).bind(NAME).bind(count).fetch_optional(db).await)?;
    let Some((number, hash, key)) = row else { return Ok(None) };
    Ok(Some((AuditHead { number: number - count, hash: read_hash(&hash)? }, key)))
}

/// Makes the row of the chain. If somebody removed it, the chain goes on under a new key: changes are still possible, and the
/// entries before do not fit any more.
async fn begin_chain(tx: &mut Tx, seal: &Seal) -> Result<(), StoreError> {
    const LAST: &str = "SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1";
    const INSERT: &str =
        "INSERT INTO audit_head (name, chain_key, number, hash, anchor_number, anchor_hash, anchor_proof)
        VALUES ($1, $2, $3, $4, 0, $5, $6) ON CONFLICT (name) DO NOTHING";
    let last: Option<(i64, Vec<u8>)> = on!(&mut *tx, |db| sqlx::query_as(LAST).fetch_optional(db).await)?;
    let none = AuditHead::default();
    let (number, hash) = last.unwrap_or_else(|| (none.number, none.hash.to_vec()));
    let key = Chain::new_key(seal);
    let proof = Chain::open(seal, &key)?.proof(&none);
    on!(tx, |db| {
        let query = sqlx::query(INSERT).bind(NAME).bind(key).bind(number).bind(hash);
        query.bind(&none.hash[..]).bind(&proof[..]).execute(db).await.map(|_| ())
    })?;
    Ok(())
}

/// A note as both databases can store it: Postgres has no NUL in texts.
fn storable(note: &AuditNote) -> AuditNote {
    let mut note = note.clone();
    for text in [&mut note.by.actor.name, &mut note.action, &mut note.target] {
        if text.contains('\0') {
            *text = text.replace('\0', "\u{fffd}");
        }
    }
    note
}

fn json(value: &Option<Value>) -> Vec<u8> {
    value.as_ref().map(|value| value.to_string().into_bytes()).unwrap_or_default()
}

fn read_hash(column: &[u8]) -> Result<[u8; 32], StoreError> {
    column.try_into().map_err(|_| StoreError::Corrupt("a hash of the audit has a wrong length".into()))
}

/// The row of `audit_head`.
struct HeadRow {
    chain_key: Vec<u8>,
    number: i64,
    hash: Vec<u8>,
    anchor_number: i64,
    anchor_hash: Vec<u8>,
    anchor_proof: Vec<u8>,
}

impl HeadRow {
    async fn read(tx: &mut Tx) -> Result<Option<Self>, StoreError> {
        const SQL: &str = "SELECT chain_key, number, hash, anchor_number, anchor_hash, anchor_proof
            FROM audit_head WHERE name = $1";
        type Row = (Vec<u8>, i64, Vec<u8>, i64, Vec<u8>, Vec<u8>);
        let row: Option<Row> = on!(tx, |db| sqlx::query_as(SQL).bind(NAME).fetch_optional(db).await)?;
        Ok(row.map(|(chain_key, number, hash, anchor_number, anchor_hash, anchor_proof)| Self {
            chain_key,
            number,
            hash,
            anchor_number,
            anchor_hash,
            anchor_proof,
        }))
    }

    fn head(&self) -> Result<AuditHead, StoreError> {
        Ok(AuditHead { number: self.number, hash: read_hash(&self.hash)? })
    }

    /// The newest entry that was deleted because of its age; `None` if no gateway did that.
    fn anchor(&self, chain: &Chain) -> Option<AuditHead> {
        let hash = read_hash(&self.anchor_hash).ok()?;
        let anchor = AuditHead { number: self.anchor_number, hash };
        (chain.proof(&anchor)[..] == self.anchor_proof[..]).then_some(anchor)
    }
}

/// The columns of an entry, in the order of [`COLUMNS`].
type EntryRow =
    (i64, i64, String, String, String, String, Vec<u8>, Vec<u8>, String, Option<String>, i64, Vec<u8>);

const COLUMNS: &str = "number, at, actor_kind, actor, action, target, before_value, after_value, outcome,
    address, count, hash";

/// An entry as it is stored, with its hash.
struct StoredEntry {
    entry: AuditEntry,
    /// As they were hashed.
    before: Vec<u8>,
    after: Vec<u8>,
    hash: Vec<u8>,
}

impl StoredEntry {
    /// Reads a row. The error is a sentence fragment that says what is wrong with it.
    fn read(row: EntryRow, values: &PurposeSeal) -> Result<Self, &'static str> {
        let (number, at_ms, kind, name, action, target, before, after, outcome, address, count, hash) = row;
        let open = |sealed: Vec<u8>| match sealed.is_empty() {
            true => Ok(Vec::new()),
            false => {
                values.open(&sealed).map(|plain| plain.to_vec()).map_err(|_| "its content cannot be opened")
            }
        };
        let (before, after) = (open(before)?, open(after)?);
        let parse = |plain: &[u8]| match plain.is_empty() {
            true => Ok(None),
            false => serde_json::from_slice(plain).map(Some).map_err(|_| "its content is not JSON"),
        };
        let kind = ActorKind::parse(&kind).ok_or("its actor is of an unknown kind")?;
        let note = AuditNote {
            at_ms,
            by: By { actor: Actor { kind, name }, address },
            action,
            target,
            before: parse(&before)?,
            after: parse(&after)?,
            outcome: AuditOutcome::parse(&outcome).ok_or("its outcome is unknown")?,
            count: u64::try_from(count).map_err(|_| "its count is negative")?,
        };
        Ok(Self { entry: AuditEntry { number, note }, before, after, hash })
    }

    /// The entry as the last one of a chain, if it follows this one.
    fn follows(&self, last: &AuditHead, chain: &Chain) -> Result<AuditHead, &'static str> {
        let hash = chain.hash(&last.hash, &self.entry, &self.before, &self.after);
        match hash[..] == self.hash[..] {
            true => Ok(AuditHead { number: self.entry.number, hash }),
            false => Err("it was altered, or is not the one that was written after the entry before it"),
        }
    }
}
