//! Operators and their credentials.

use model::Timestamp;
use rusqlite::{Connection, params};

use super::Store;
use super::query::{self, change};
use crate::error::Result;
use crate::operators::{CredentialKind, OperatorCredential, OperatorRecord, OperatorRole};

impl Store {
    /// All operators with their credentials, by name; those who were revoked among them.
    pub async fn operators(&self) -> Result<Vec<OperatorRecord>> {
        self.read(all).await
    }

    /// Keeps an operator as he is now, with all of his credentials.
    pub async fn put_operator(&self, operator: OperatorRecord) -> Result<()> {
        self.write(0, move |session| put(&session.db, &operator)).await
    }
}

fn all(db: &Connection) -> Result<Vec<OperatorRecord>> {
    const OPERATORS: &str =
        "SELECT name, role, nodes, created, created_by, revoked, revoked_by FROM operator ORDER BY name";
    const CREDENTIALS: &str = "SELECT operator, id, kind, created, expires FROM operator_credential
        ORDER BY operator, created, id";
    let credentials = query::all(db, "read operators' credentials", CREDENTIALS, [], |row| {
        let is_token = row.get_ref(2)?.as_str()? == CredentialKind::Token.as_str();
        let kind = if is_token { CredentialKind::Token } else { CredentialKind::Certificate };
        let (created, expires) = (Timestamp(row.get(3)?), Timestamp(row.get(4)?));
        Ok((row.get::<_, String>(0)?, OperatorCredential { id: row.get(1)?, kind, created, expires }))
    })?;
    let mut operators = query::all(db, "read the operators", OPERATORS, [], |row| {
        let revoked: Option<i64> = row.get(5)?;
        let by: Option<String> = row.get(6)?;
        Ok(OperatorRecord {
            name: row.get(0)?,
            role: OperatorRole::named(row.get_ref(1)?.as_str()?),
            nodes: row.get(2)?,
            created: Timestamp(row.get(3)?),
            created_by: row.get(4)?,
            revoked: revoked.map(|at| (Timestamp(at), by.unwrap_or_default())),
            credentials: Vec::new(),
        })
    })?;
    for (name, credential) in credentials {
        if let Ok(at) = operators.binary_search_by(|operator| operator.name.cmp(&name)) {
            operators[at].credentials.push(credential);
        }
    }
    Ok(operators)
}

/// Keeps an operator as he is now, with all of his credentials.
fn put(db: &Connection, operator: &OperatorRecord) -> Result<()> {
    const OPERATOR: &str =
        "INSERT INTO operator (name, role, nodes, created, created_by, revoked, revoked_by)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (name) DO UPDATE SET role = ?2, nodes = ?3,
        created = ?4, created_by = ?5, revoked = ?6, revoked_by = ?7";
    const FORGET: &str = "DELETE FROM operator_credential WHERE operator = ?1";
    const CREDENTIAL: &str = "INSERT INTO operator_credential (id, operator, kind, created, expires)
        VALUES (?1, ?2, ?3, ?4, ?5)";
    let OperatorRecord { name, role, nodes, created, created_by, revoked, credentials } = operator;
    let (revoked, revoked_by) = revoked.as_ref().map(|(at, by)| (at.0, by)).unzip();
    let row = params![name, role.as_str(), nodes, created.0, created_by, revoked, revoked_by];
    change(db, "keep an operator", OPERATOR, row)?;
    change(db, "keep an operator", FORGET, [name])?;
    for credential in credentials {
        let OperatorCredential { id, kind, created, expires } = credential;
        let row = params![id, name, kind.as_str(), created.0, expires.0];
        change(db, "keep an operator's credential", CREDENTIAL, row)?;
    }
    Ok(())
}
