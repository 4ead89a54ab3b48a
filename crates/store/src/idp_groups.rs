//! The table `idp_groups`: what people may do because of their groups at the identity provider.

use super::changes::ChangedKind;
use super::db::{Tx, on};
use super::{Store, StoreError, allow_lists, rate_limits};
use model::{AuditNote, IdpGroup, Role};

impl Store {
    /// Loads all groups, ordered by name.
    pub async fn load_idp_groups(&self) -> Result<Vec<IdpGroup>, StoreError> {
        self.read_idp_groups().await?.into_iter().collect()
    }

    /// Reads each group, or what is wrong with it.
    pub(super) async fn read_idp_groups(&self) -> Result<Vec<Result<IdpGroup, StoreError>>, StoreError> {
        let mut tx = self.read().await?;
        let groups = read_idp_groups_of(&mut tx, None).await?;
        tx.commit().await?;
        Ok(groups)
    }

    /// Stores a new or changed group.
    pub async fn put_idp_group(
        &self,
        group: &IdpGroup,
        now_ms: i64,
        note: &AuditNote,
    ) -> Result<(), StoreError> {
        const SQL: &str = "INSERT INTO idp_groups (name, role, allow_list, rate_limit, created_at, updated_at)
            VALUES ($1, $2, $3, $4, $5, $5) ON CONFLICT (name) DO UPDATE SET role = excluded.role,
            allow_list = excluded.allow_list, rate_limit = excluded.rate_limit, updated_at = excluded.updated_at";
        let mut tx = self.change(note).await?;
        on!(&mut tx, |db| {
            let query = sqlx::query(SQL).bind(&group.name).bind(group.role.as_str());
            let query = query.bind(allow_lists::to_column(&group.allow_list));
            let query = query.bind(rate_limits::to_column(group.rate_limit)).bind(now_ms);
            query.execute(db).await.map(|_| ())
        })?;
        tx.note(ChangedKind::IdpGroup, &group.name).await?;
        tx.commit().await
    }

    pub async fn delete_idp_group(&self, name: &str, note: &AuditNote) -> Result<(), StoreError> {
        const SQL: &str = "DELETE FROM idp_groups WHERE name = $1";
        let mut tx = self.change(note).await?;
        on!(&mut tx, |db| sqlx::query(SQL).bind(name).execute(db).await.map(|_| ()))?;
        tx.note(ChangedKind::IdpGroup, name).await?;
        tx.commit().await
    }
}

/// Reads each group within a transaction, or only the one of a name.
pub(super) async fn read_idp_groups_of(
    tx: &mut Tx,
    only: Option<&str>,
) -> Result<Vec<Result<IdpGroup, StoreError>>, StoreError> {
    const SQL: &str = "SELECT name, role, allow_list, rate_limit FROM idp_groups
        WHERE CAST($1 AS TEXT) IS NULL OR name = $1 ORDER BY name";
    type Row = (String, String, String, Option<String>);
    let rows: Vec<Row> = on!(tx, |db| sqlx::query_as(SQL).bind(only).fetch_all(db).await)?;
    let groups = rows.into_iter().map(|(name, role, allow_list, rate_limit)| {
        let corrupt = |problem: String| StoreError::Corrupt(format!("IdP group \"{name}\": {problem}"));
        Ok(IdpGroup {
            role: Role::parse(&role).ok_or_else(|| corrupt("its role is unknown".into()))?,
            allow_list: allow_lists::read(&allow_list).map_err(corrupt)?,
            rate_limit: rate_limits::read(rate_limit.as_deref()).map_err(corrupt)?,
            name,
        })
    });
    Ok(groups.collect())
}
