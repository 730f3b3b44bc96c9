//! Work products of a ticket.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Deserialize;
use serde_json::{Value, json};

use super::journal::About;
use super::{StoreError, Writer, new_id, tickets};
use crate::model::output::WorkProduct;
use crate::model::{Refusal, Ticket, text};

/// How many a ticket may have.
const PER_TICKET: i64 = 100;
/// Bytes of a URL and of the metadata.
const URL: usize = 2000;
const METADATA: usize = 16 * 1024;

const PRODUCT: &str = "id, ticket, kind, provider, title, url, status, is_primary, metadata, \
                       created_by_agent, created_by_user, created_at, updated_at";

/// What a client gives to register or change one; absent fields stay as they are.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProductPatch {
    /// A word.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// A word.
    pub provider: Option<String>,
    /// One line.
    pub title: Option<String>,
    /// `http` or `https`.
    pub url: Option<String>,
    /// A word.
    pub status: Option<String>,
    /// The one that counts.
    pub is_primary: Option<bool>,
    /// A JSON object.
    pub metadata: Option<Value>,
}

/// Registers one.
pub fn create(
    w: &mut Writer<'_>,
    reference: &str,
    new: ProductPatch,
) -> Result<WorkProduct, StoreError> {
    let company = w.actor.company().map(str::to_owned);
    let ticket = tickets::get(w, reference, company.as_deref())?;
    w.actor.may_change(&ticket)?;
    let there: i64 = w.query_row(
        "SELECT count(*) FROM work_products WHERE ticket = ?",
        [&ticket.id],
        |row| row.get(0),
    )?;
    if there >= PER_TICKET {
        let error = format!("a ticket has at most {PER_TICKET} work products");
        return Err(Refusal::unprocessable("work_product_limit", error).into());
    }
    let blank = WorkProduct {
        id: new_id(),
        ticket: ticket.id.clone(),
        kind: String::new(),
        provider: None,
        title: String::new(),
        url: None,
        status: None,
        primary: false,
        metadata: None,
        created_by_agent: w.actor.agent().map(str::to_owned),
        created_by_user: w.actor.user().map(str::to_owned),
        created_at: w.now,
        updated_at: w.now,
    };
    let it = edited(blank, new)?;
    if it.kind.is_empty() || it.title.is_empty() {
        return Err(Refusal::invalid("type and title must not be empty").into());
    }
    only_primary(w, &it)?;
    w.execute(
        &format!(
            "INSERT INTO work_products ({PRODUCT}, created_by_run)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        ),
        params![
            it.id,
            it.ticket,
            it.kind,
            it.provider,
            it.title,
            it.url,
            it.status,
            it.primary,
            it.metadata.as_ref().map(Value::to_string),
            it.created_by_agent,
            it.created_by_user,
            it.created_at,
            it.updated_at,
            w.actor.run()
        ],
    )?;
    note(w, "work_product.created", &ticket, &it)?;
    Ok(it)
}

/// Changes one.
pub fn change(
    w: &mut Writer<'_>,
    id: &str,
    patch: ProductPatch,
) -> Result<WorkProduct, StoreError> {
    let company = w.actor.company().map(str::to_owned);
    let before = get(w, id, company.as_deref())?;
    let ticket = tickets::get(w, &before.ticket, None)?;
    w.actor.may_change(&ticket)?;
    let mut it = edited(before, patch)?;
    it.updated_at = w.now;
    only_primary(w, &it)?;
    w.execute(
        "UPDATE work_products SET kind = ?, provider = ?, title = ?, url = ?, status = ?,
             is_primary = ?, metadata = ?, updated_at = ? WHERE id = ?",
        params![
            it.kind,
            it.provider,
            it.title,
            it.url,
            it.status,
            it.primary,
            it.metadata.as_ref().map(Value::to_string),
            it.updated_at,
            it.id
        ],
    )?;
    note(w, "work_product.changed", &ticket, &it)?;
    Ok(it)
}

/// The work product with this id; `within` limits an agent to its own company.
pub fn get(
    connection: &Connection,
    id: &str,
    within: Option<&str>,
) -> Result<WorkProduct, StoreError> {
    connection
        .prepare_cached(&format!(
            "SELECT {PRODUCT} FROM work_products WHERE id = ?1 AND (?2 IS NULL OR ?2 =
                 (SELECT company FROM tickets WHERE tickets.id = work_products.ticket))"
        ))?
        .query_row(params![id, within], product_row)
        .optional()?
        .ok_or_else(|| Refusal::missing("work product").into())
}

/// The work products of a ticket, oldest first.
pub fn list(connection: &Connection, ticket: &str) -> Result<Vec<WorkProduct>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {PRODUCT} FROM work_products WHERE ticket = ? ORDER BY created_at, id"
    ))?;
    let rows = statement.query_map([ticket], product_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn edited(mut it: WorkProduct, patch: ProductPatch) -> Result<WorkProduct, Refusal> {
    if let Some(kind) = patch.kind {
        it.kind = text::line("type", &kind, text::NAME)?;
    }
    if let Some(title) = patch.title {
        it.title = text::title(&title)?;
    }
    if let Some(provider) = patch.provider {
        it.provider = Some(text::line("provider", &provider, text::NAME)?);
    }
    if let Some(status) = patch.status {
        it.status = Some(text::line("status", &status, text::NAME)?);
    }
    if let Some(url) = patch.url {
        let url = text::line("url", &url, URL)?;
        if !(url.starts_with("https://") || url.starts_with("http://")) {
            return Err(Refusal::invalid("url must begin with http:// or https://"));
        }
        it.url = Some(url);
    }
    if let Some(metadata) = patch.metadata {
        if !metadata.is_object() || metadata.to_string().len() > METADATA {
            let error = format!("metadata must be an object of at most {METADATA} bytes");
            return Err(Refusal::invalid(error));
        }
        it.metadata = Some(metadata);
    }
    it.primary = patch.is_primary.unwrap_or(it.primary);
    Ok(it)
}

/// Another one that counted until now does not any more.
fn only_primary(w: &Writer<'_>, it: &WorkProduct) -> Result<(), StoreError> {
    if it.primary {
        w.execute(
            "UPDATE work_products SET is_primary = 0 WHERE ticket = ? AND id <> ? AND is_primary = 1",
            [&it.ticket, &it.id],
        )?;
    }
    Ok(())
}

fn note(
    w: &mut Writer<'_>,
    kind: &str,
    ticket: &Ticket,
    it: &WorkProduct,
) -> Result<(), StoreError> {
    let bytes = it
        .metadata
        .as_ref()
        .map_or(0, |data| data.to_string().len());
    let facts = json!({ "workProduct": it.id, "type": it.kind, "title": it.title, "url": it.url,
                        "status": it.status, "primary": it.primary, "bytes": bytes });
    w.note(kind, About::of(ticket), facts)?;
    Ok(())
}

fn product_row(row: &Row<'_>) -> rusqlite::Result<WorkProduct> {
    let metadata: Option<String> = row.get(8)?;
    Ok(WorkProduct {
        id: row.get(0)?,
        ticket: row.get(1)?,
        kind: row.get(2)?,
        provider: row.get(3)?,
        title: row.get(4)?,
        url: row.get(5)?,
        status: row.get(6)?,
        primary: row.get(7)?,
        metadata: metadata.and_then(|text| serde_json::from_str(&text).ok()),
        created_by_agent: row.get(9)?,
        created_by_user: row.get(10)?,
        created_at: row.get(11)?,
        updated_at: row.get(12)?,
    })
}
