#include "policy/content/graphql.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "policy/content/graphql_document.hpp"
#include "policy/content/json.hpp"
#include "policy/sha256.hpp"
#include "policy/text.hpp"

namespace openshell::policy {
namespace {

using text::cat;

constexpr std::array<std::string_view, 7> kKeys{"query", "operationName", "variables", "extensions", "id", "documentId", "queryId"};
constexpr std::array<std::string_view, 3> kIdKeys{"id", "documentId", "queryId"};

// One operation as it was sent. Empty texts were not given.
struct Asked {
  std::string query, operation_name, hash;
  std::array<std::string, 3> ids;
};

GraphqlContent refused(std::string why) {
  GraphqlContent out;
  out.error = std::move(why);
  return out;
}

// The one id that is given; several that differ could be read in several ways.
bool the_id(const Asked& asked, std::string& out) {
  for (const auto& id : asked.ids) {
    if (id.empty()) continue;
    if (!out.empty() && out != id) return false;
    out = id;
  }
  return true;
}

// Empty: `out` is what a server would run.
std::string operation_of(const Asked& asked, GraphqlOperation& out) {
  if (!the_id(asked, out.persisted_id)) return "GraphQL request has several persisted query identifiers";
  out.persisted_hash = asked.hash;
  out.persisted = !out.persisted_hash.empty() || !out.persisted_id.empty();
  if (asked.query.empty()) {
    if (!out.persisted) return "GraphQL request has no query document or persisted query identifier";
    if (!out.persisted_hash.empty() && !out.persisted_id.empty() && out.persisted_hash != out.persisted_id) {
      return "GraphQL request has several persisted query identifiers";
    }
    out.name = asked.operation_name;
    return {};
  }
  // A server may run what an identifier names instead of the text beside it.
  if (!out.persisted_id.empty()) return "GraphQL request has both a query document and a persisted query identifier";
  if (!out.persisted_hash.empty() && text::lower(out.persisted_hash) != sha256_hex(asked.query)) {
    return "GraphQL persisted query hash is not that of the query document";
  }
  auto definition = read_graphql_document(asked.query, asked.operation_name);
  if (!definition.ok()) return std::string{definition.status().message()};
  out.type = std::move(definition->type);
  out.name = std::move(definition->name);
  out.fields = std::move(definition->fields);
  return {};
}

// A text, or null for none.
bool optional_text(JsonReader& json, std::string& out) {
  if (json.peek() == JsonKind::null) return json.skip();
  return json.peek() == JsonKind::string && json.string(out);
}

// `extensions.persistedQuery.sha256Hash`, where it is there.
bool read_extensions(JsonReader& json, std::string& hash) {
  if (json.peek() == JsonKind::null) return json.skip();
  if (json.peek() != JsonKind::object) return false;
  return json.object([&](std::string_view key) {
    if (key != "persistedQuery") return !differs_in_case(key, std::array<std::string_view, 1>{"persistedQuery"}) && json.skip();
    if (json.peek() == JsonKind::null) return json.skip();
    return json.peek() == JsonKind::object && json.object([&](std::string_view name) {
      if (name == "sha256Hash") return optional_text(json, hash);
      return !differs_in_case(name, std::array<std::string_view, 1>{"sha256Hash"}) && json.skip();
    });
  });
}

// The members of one request object. `fault` says more than the reader's own error.
bool read_request(JsonReader& json, Asked& out, std::string& fault) {
  const auto because = [&fault](std::string why) {
    if (fault.empty()) fault = std::move(why);
    return false;
  };
  if (json.peek() != JsonKind::object) return json.peek() != JsonKind::none && because("GraphQL request is not a JSON object");
  return json.object([&](std::string_view key) {
    if (differs_in_case(key, kKeys)) return because("GraphQL request has a key that differs from the protocol's in case only");
    const std::string name{key};
    const auto named_text = [&](std::string& into) {
      return optional_text(json, into) || !json.error().empty() || because(cat("GraphQL ", name, " is not a string"));
    };
    if (key == "query") return named_text(out.query);
    if (key == "operationName") return named_text(out.operation_name);
    if (key == "extensions")
      return read_extensions(json, out.hash) || (json.error().empty() && because("GraphQL extensions are malformed"));
    const auto id = std::find(kIdKeys.begin(), kIdKeys.end(), key);
    return id == kIdKeys.end() ? json.skip() : named_text(out.ids.at(static_cast<std::size_t>(id - kIdKeys.begin())));
  });
}

GraphqlContent read_body(std::string_view body) {
  JsonReader json{body};
  GraphqlContent out;
  std::string fault;
  const auto one = [&] {
    Asked asked;
    if (!read_request(json, asked, fault)) return false;
    out.operations.emplace_back();
    fault = operation_of(asked, out.operations.back());
    if (fault.empty() && out.operations.size() > kMaxGraphqlBatch) fault = "GraphQL batch has too many operations";
    return fault.empty();
  };
  const bool read = (json.peek() == JsonKind::array ? json.array(one) : one()) && json.finish();
  if (!read) return refused(!fault.empty() ? fault : json.error().empty() ? "invalid JSON" : std::string{json.error()});
  if (out.operations.empty()) return refused("GraphQL batch is empty");
  return out;
}

GraphqlContent read_query(std::span<const std::pair<std::string, std::string>> query) {
  std::array<std::optional<std::string>, kKeys.size()> values;
  for (const auto& [name, value] : query) {
    if (differs_in_case(name, kKeys)) return refused("GraphQL GET parameter differs from the protocol's in case only");
    const auto known = std::find(kKeys.begin(), kKeys.end(), name);
    if (known == kKeys.end()) continue;
    auto& slot = values.at(static_cast<std::size_t>(known - kKeys.begin()));
    if (slot) return refused(cat("GraphQL GET parameter \"", *known, "\" must not appear more than once"));
    slot = value;
  }
  Asked asked;
  asked.query = values[0].value_or("");
  asked.operation_name = values[1].value_or("");
  std::size_t ids = 0;
  for (std::size_t i = 0; i < asked.ids.size(); ++i) {
    asked.ids.at(i) = values.at(4 + i).value_or("");
    ids += values.at(4 + i) ? 1U : 0U;
  }
  if (ids > 1) return refused("GraphQL request has several persisted query identifiers");
  if (values[3] && !values[3]->empty()) {
    JsonReader json{*values[3]};
    if (!read_extensions(json, asked.hash) || !json.finish()) return refused("GraphQL GET parameter \"extensions\" is invalid JSON");
  }
  GraphqlContent out;
  out.operations.emplace_back();
  if (auto fault = operation_of(asked, out.operations.back()); !fault.empty()) return refused(std::move(fault));
  return out;
}

}  // namespace

GraphqlContent classify_graphql(std::string_view method, std::span<const std::pair<std::string, std::string>> query, const BodyHead& head,
                                std::string_view body) {
  if (method == "GET") {
    if (!body.empty()) return refused("GraphQL GET request has a body");
    return read_query(query);
  }
  if (method != "POST") return refused(cat("unsupported GraphQL HTTP method ", method.substr(0, 32)));
  for (const auto& [name, value] : query) {
    const bool ours = std::find(kKeys.begin(), kKeys.end(), name) != kKeys.end() || differs_in_case(name, kKeys);
    if (ours) return refused("GraphQL POST request has a GraphQL parameter in its URL");
  }
  if (auto fault = json_body_fault(head, true); !fault.empty()) return refused(std::move(fault));
  return read_body(body);
}

GraphqlMessage classify_graphql_message(std::string_view text) {
  constexpr std::array<std::string_view, 6> kControl{"connection_init", "connection_terminate", "ping", "pong", "complete", "stop"};
  constexpr std::array<std::string_view, 3> kMembers{"type", "id", "payload"};
  GraphqlMessage out;
  JsonReader json{text};
  std::string type, id;
  std::string_view payload;
  JsonKind payload_kind = JsonKind::none;
  const bool read = json.peek() == JsonKind::object && json.object([&](std::string_view key) {
    if (differs_in_case(key, kMembers)) return false;
    if (key == "type") return json.string(type);
    if (key == "id") return json.peek() == JsonKind::string ? json.string(id) : json.skip();
    if (key != "payload") return json.skip();
    payload_kind = json.peek();
    return json.raw(payload);
  }) && json.finish();
  if (!read || type.empty()) {
    out.content = refused("WebSocket message is no GraphQL message");
    return out;
  }
  out.control = std::find(kControl.begin(), kControl.end(), type) != kControl.end();
  if (out.control) return out;
  if (type != "subscribe" && type != "start") {
    out.content = refused("WebSocket message has a type that GraphQL does not define");
  } else if (id.empty() || payload_kind != JsonKind::object) {
    out.content = refused("WebSocket GraphQL operation needs an id and a payload");
  } else {
    out.content = read_body(payload);
  }
  return out;
}

}  // namespace openshell::policy
