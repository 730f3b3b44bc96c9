//! What a GraphQL request would execute: the operation by its type, and every field that it selects
//! from the root, behind aliases and fragments. A document that is not there (persisted queries) or
//! that two servers could read in two ways is not inspected.

use std::collections::{BTreeSet, HashMap};

use apollo_parser::{Lexer, Parser, TokenKind, cst};
use policy::{Operation, OperationKind};
use serde_json::{Map, Value};

use super::{form, json};

/// Selections within selections, values within values.
const MOST_DEPTH: usize = 64;
/// Tokens of one document.
const MOST_TOKENS: usize = 50_000;
/// Requests of one batch.
const MOST_REQUESTS: usize = 100;

/// Members of a request that are understood.
const MEMBERS: &[&str] = &["query", "operationName", "variables", "extensions"];

/// Reads a request that was posted as JSON: one, or a batch. `query` is the target's own.
///
/// # Errors
/// Why it cannot be inspected.
pub fn posted(text: &[u8], query: Option<&str>) -> Result<Vec<Operation>, String> {
    // Some servers read these from the target before they read the body.
    if query.is_some_and(|query| !query.is_empty()) {
        return Err("a posted GraphQL request has a query in its target".to_owned());
    }
    let mut left = MOST_TOKENS;
    match json::read(text)? {
        Value::Object(request) => Ok(vec![one(&request, &mut left)?]),
        Value::Array(batch) if batch.len() > MOST_REQUESTS => {
            Err(format!("a batch has more than {MOST_REQUESTS} requests"))
        }
        Value::Array(batch) => batch
            .iter()
            .map(|request| {
                let request = request.as_object();
                one(
                    request.ok_or("a batch holds something else than requests")?,
                    &mut left,
                )
            })
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Err("the body is no GraphQL request".to_owned())
        }
    }
}

/// Reads a request whose parts stand in the query of its target.
///
/// # Errors
/// Why it cannot be inspected.
pub fn got(query: Option<&str>) -> Result<Vec<Operation>, String> {
    let mut request = Map::new();
    for (name, value) in form::read(query.unwrap_or_default().as_bytes())? {
        let value = match name.as_str() {
            "variables" | "extensions" => json::read(value.as_bytes())?,
            _ => Value::String(value),
        };
        if request.insert(name, value).is_some() {
            return Err("a part of the GraphQL request stands there twice".to_owned());
        }
    }
    let operation = one(&request, &mut { MOST_TOKENS })?;
    Ok(vec![operation])
}

fn one(request: &Map<String, Value>, left: &mut usize) -> Result<Operation, String> {
    if let Some(name) = request
        .keys()
        .find(|name| !MEMBERS.contains(&name.as_str()))
    {
        let shown: String = name.chars().take(40).collect();
        return Err(format!(
            "the GraphQL request has a member `{shown}` that is not understood"
        ));
    }
    match request.get("extensions") {
        None | Some(Value::Null) => {}
        Some(Value::Object(extensions))
            if extensions.keys().all(|name| name == "clientLibrary") => {}
        Some(_) => {
            return Err("the GraphQL request has extensions, such as a persisted query".to_owned());
        }
    }
    if !matches!(
        request.get("variables"),
        None | Some(Value::Null | Value::Object(_))
    ) {
        return Err("the variables of the GraphQL request are no object".to_owned());
    }
    let Some(Value::String(document)) = request.get("query") else {
        return Err(
            "the GraphQL request has no document: persisted queries are not let through".to_owned(),
        );
    };
    let name = match request.get("operationName") {
        None | Some(Value::Null) => None,
        Some(Value::String(name)) => Some(name.as_str()),
        Some(_) => return Err("the operation's name is no text".to_owned()),
    };
    executed(document, name, left)
}

/// What a document would execute under the given name.
fn executed(document: &str, name: Option<&str>, left: &mut usize) -> Result<Operation, String> {
    let odd = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r');
    if document.contains(odd) {
        return Err("the GraphQL document has a control character".to_owned());
    }
    let unparsed = || "the GraphQL document cannot be parsed within the gate's bounds".to_owned();
    // The parser itself goes on behind what is wrong within a text.
    for token in Lexer::new(document) {
        let token = token.map_err(|_| unparsed())?;
        *left = left.checked_sub(1).ok_or_else(unparsed)?;
        let text = token.data();
        let line = token.kind() == TokenKind::StringValue && !text.starts_with("\"\"\"");
        if line && text.contains(['\n', '\r']) {
            return Err(unparsed());
        }
    }
    let tree = Parser::new(document)
        .recursion_limit(MOST_DEPTH)
        .token_limit(MOST_TOKENS)
        .parse();
    if tree.errors().next().is_some() {
        return Err(unparsed());
    }
    let mut operations = Vec::new();
    let mut fragments: HashMap<String, cst::SelectionSet> = HashMap::new();
    for definition in tree.document().definitions() {
        if let cst::Definition::OperationDefinition(operation) = definition {
            operations.push(operation);
            continue;
        }
        let cst::Definition::FragmentDefinition(fragment) = definition else {
            return Err("the GraphQL document defines a schema".to_owned());
        };
        let named = fragment.fragment_name().and_then(|name| name.name());
        let name = named.ok_or("a fragment has no name")?.text().to_string();
        let set = fragment
            .selection_set()
            .ok_or("a fragment selects nothing")?;
        if fragments.insert(name, set).is_some() {
            return Err("two fragments have one name".to_owned());
        }
    }
    let named =
        |operation: &cst::OperationDefinition| operation.name().map(|name| name.text().to_string());
    let mut names = BTreeSet::new();
    if !operations
        .iter()
        .all(|operation| names.insert(named(operation)))
    {
        return Err("two operations have one name".to_owned());
    }
    let operation = match (name, operations.as_slice()) {
        (_, []) => return Err("the GraphQL document has no operation".to_owned()),
        (None, [operation]) => operation,
        (None, _) => {
            return Err("the document has several operations, and none is named".to_owned());
        }
        (Some(name), several) => several
            .iter()
            .find(|operation| named(operation).as_deref() == Some(name))
            .ok_or("the operation that is named is not in the document")?,
    };
    let kind = match operation.operation_type() {
        None => OperationKind::Query,
        Some(kind) if kind.mutation_token().is_some() => OperationKind::Mutation,
        Some(kind) if kind.subscription_token().is_some() => OperationKind::Subscription,
        Some(kind) if kind.query_token().is_some() => OperationKind::Query,
        Some(_) => return Err("an operation is of no known type".to_owned()),
    };
    let mut root = Root {
        fragments: &fragments,
        fields: BTreeSet::new(),
        seen: BTreeSet::new(),
    };
    let set = operation
        .selection_set()
        .ok_or("an operation selects nothing")?;
    root.walk(&set, MOST_DEPTH)?;
    Ok(Operation {
        kind,
        name: named(operation),
        fields: root.fields.into_iter().collect(),
    })
}

/// Collects the fields of the root, whatever fragments they stand in.
struct Root<'f> {
    fragments: &'f HashMap<String, cst::SelectionSet>,
    fields: BTreeSet<String>,
    seen: BTreeSet<String>,
}

impl Root<'_> {
    fn walk(&mut self, set: &cst::SelectionSet, depth: usize) -> Result<(), String> {
        let depth = depth
            .checked_sub(1)
            .ok_or("fragments are nested too deeply")?;
        for selection in set.selections() {
            match selection {
                cst::Selection::Field(field) => {
                    let name = field.name().ok_or("a field has no name")?;
                    self.fields.insert(name.text().to_string());
                }
                cst::Selection::InlineFragment(fragment) => {
                    let set = fragment
                        .selection_set()
                        .ok_or("a fragment selects nothing")?;
                    self.walk(&set, depth)?;
                }
                cst::Selection::FragmentSpread(spread) => {
                    let named = spread.fragment_name().and_then(|name| name.name());
                    let name = named.ok_or("a fragment has no name")?.text().to_string();
                    let set = self
                        .fragments
                        .get(&name)
                        .ok_or("a fragment is not in the document")?;
                    if self.seen.insert(name) {
                        self.walk(set, depth)?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
