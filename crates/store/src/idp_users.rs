//! The table `idp_users`: people of an identity provider (IdP), who have no token.

use super::db::{Tx, on};
use super::{StoreError, allow_lists, rate_limits};
use model::{HolderName, IdpAccount, PrincipalId, Role, User};

pub(super) const RENAME: &str = "UPDATE idp_users SET username = $2 WHERE username = $1";
pub(super) const DELETE: &str = "DELETE FROM idp_users WHERE username = $1";

/// Reads each of them, or only the one of a name, or what is wrong with it.
pub(super) async fn read_of(
    tx: &mut Tx,
    only: Option<&str>,
) -> Result<Vec<Result<User, StoreError>>, StoreError> {
    const SQL: &str = "SELECT username, id, issuer, subject, idp_groups, role, rate_limit, allow_list,
        is_disabled FROM idp_users WHERE CAST($1 AS TEXT) IS NULL OR username = $1 ORDER BY username";
    type Row = (String, i64, String, String, String, String, Option<String>, String, i64);
    let rows: Vec<Row> = on!(tx, |db| sqlx::query_as(SQL).bind(only).fetch_all(db).await)?;
    let users = rows.into_iter().map(|row| {
        let (name, id, issuer, subject, groups, role, rate_limit, allow_list, is_disabled) = row;
        let corrupt = |problem: String| StoreError::Corrupt(format!("user \"{name}\": {problem}"));
        let groups = serde_json::from_str(&groups)
            .map_err(|_| corrupt("its groups are not a JSON array of strings".into()))?;
        Ok(User {
            id: PrincipalId(id.cast_unsigned()),
            username: HolderName::parse(&name).map_err(corrupt)?,
            role: Role::parse(&role).ok_or_else(|| corrupt("its role is unknown".into()))?,
            token: None,
            rate_limit: rate_limits::read(rate_limit.as_deref()).map_err(corrupt)?,
            allow_list: allow_lists::read(&allow_list).map_err(corrupt)?,
            is_disabled: is_disabled != 0,
            idp: Some(IdpAccount { issuer, subject, groups }),
        })
    });
    Ok(users.collect())
}

pub(super) async fn put(
    tx: &mut Tx,
    user: &User,
    account: &IdpAccount,
    now_ms: i64,
) -> Result<(), sqlx::Error> {
    const SQL: &str =
        "INSERT INTO idp_users (username, id, issuer, subject, idp_groups, role, rate_limit, allow_list,
        is_disabled, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10)
        ON CONFLICT (username) DO UPDATE SET idp_groups = excluded.idp_groups, role = excluded.role,
        rate_limit = excluded.rate_limit, allow_list = excluded.allow_list, is_disabled = excluded.is_disabled,
        updated_at = excluded.updated_at";
    let groups = serde_json::to_string(&account.groups).expect("a list of strings can be serialized");
    on!(tx, |db| {
        let query = sqlx::query(SQL).bind(user.username.as_str()).bind(user.id.0.cast_signed());
        let query = query.bind(&account.issuer).bind(&account.subject).bind(groups).bind(user.role.as_str());
        let query = query.bind(rate_limits::to_column(user.rate_limit));
        let query = query.bind(allow_lists::to_column(&user.allow_list)).bind(i64::from(user.is_disabled));
        query.bind(now_ms).execute(db).await.map(|_| ())
    })
}
