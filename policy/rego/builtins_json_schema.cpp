#include "policy/rego/builtins_groups.hpp"
#include "policy/rego/json_schema.hpp"
#include "policy/rego/operands.hpp"
#include "policy/rego/pattern.hpp"
#include "policy/rego/time_layout.hpp"

#include <arpa/inet.h>

#include <array>

namespace openshell::policy::rego {
namespace {

std::string_view message_of(const absl::Status& status) { return {status.message().data(), status.message().size()}; }

/// A document as an object, or as the text of one.
absl::StatusOr<Value> document_of(QueryContext& context, const Value& value) {
  if (value.is_object()) {
    if (auto status = charge_whole(context, value); !status.ok()) return status;
    return parse_json(to_json(value));
  }
  if (!value.is_string()) return failure("wrong type, expected string or object");
  if (auto status = context.charge(value.text().size() / 64); !status.ok()) return status;
  auto parsed = parse_json(value.text());
  if (!parsed.ok()) return failure("invalid JSON string");
  return parsed;
}

BuiltinResult verify_schema(QueryContext& context, Arguments a) {
  const auto refused = [](const absl::Status& why) {
    return Value::array({Value::boolean(false), Value::string(text::cat("jsonschema: ", message_of(why)))});
  };
  const auto schema = document_of(context, a[0]);
  if (absl::IsResourceExhausted(schema.status())) return schema.status();
  if (!schema.ok()) return refused(schema.status());
  const auto status = check_schema(context, *schema);
  if (absl::IsResourceExhausted(status)) return status;
  if (!status.ok()) return refused(status);
  return Value::array({Value::boolean(true), Value::null()});
}

BuiltinResult match_schema(QueryContext& context, Arguments a) {
  const auto document = document_of(context, a[0]);
  if (!document.ok()) return document.status();
  const auto schema = document_of(context, a[1]);
  if (!schema.ok()) return schema.status();
  if (auto status = check_schema(context, *schema); !status.ok()) return status;
  const auto faults = validate(context, *schema, *document);
  if (!faults.ok()) return faults.status();
  std::vector<Value> list;
  for (const auto& fault : *faults) {
    list.push_back(Value::object({{Value::string("desc"), Value::string(fault.description)},
                                  {Value::string("error"), Value::string(text::cat(fault.field, ": ", fault.description))},
                                  {Value::string("field"), Value::string(fault.field)},
                                  {Value::string("type"), Value::string(fault.type)}}));
  }
  return Value::array({Value::boolean(list.empty()), Value::array(std::move(list))});
}

bool is_address(int family, std::string_view text) {
  std::array<unsigned char, 16> bytes{};
  return inet_pton(family, std::string(text).c_str(), bytes.data()) == 1;
}

/// Compiled once, for the process.
bool fits(const re2::RE2& pattern, std::string_view text) {
  return re2::RE2::FullMatch(re2::StringPiece(text.data(), text.size()), pattern);
}

}  // namespace

bool has_format(std::string_view format, std::string_view text) {
  static const re2::RE2 host(
      R"(([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]{0,61}[a-zA-Z0-9])(\.([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]{0,61}[a-zA-Z0-9]))*)");
  static const re2::RE2 uuid("(?i)[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12}");
  static const re2::RE2 email(R"([^@\s<>()\[\],;:"]+@[^@\s<>()\[\],;:"]+)");
  static const re2::RE2 uri(R"([a-zA-Z][a-zA-Z0-9+.\-]*:[^\s\\]*)");
  static const re2::RE2 pointer("(?:/(?:[^~/]|~0|~1)*)*");
  if (format == "date-time") {
    for (const std::string_view layout :
         std::initializer_list<std::string_view>{"15:04:05", "15:04:05Z07:00", "2006-01-02", kRfc3339, kRfc3339Nano}) {
      if (parse_time(layout, text).ok()) return true;
    }
    return false;
  }
  if (format == "date") return parse_time("2006-01-02", text).ok();
  if (format == "time") return parse_time("15:04:05", text).ok() || parse_time("15:04:05Z07:00", text).ok();
  if (format == "ipv4") return is_address(AF_INET, text);
  if (format == "ipv6") return is_address(AF_INET6, text);
  if (format == "hostname") return text.size() < 256 && fits(host, text);
  if (format == "uuid") return fits(uuid, text);
  if (format == "email") return fits(email, text);
  if (format == "uri") return fits(uri, text);
  if (format == "json-pointer") return fits(pointer, text);
  if (format == "regex") return re2::RE2(re2::StringPiece(text.data(), text.size()), re2::RE2::Quiet).ok();
  return true;
}

const BuiltinTable& json_schema_builtins() {
  using namespace types;
  static const Type document = any_of({string(), object_of(any(), any())});
  static const Type fault = record({{"desc", string()}, {"error", string()}, {"field", string()}, {"type", string()}});
  static const BuiltinTable table = {
      {"json.match_schema", {document, document}, tuple({boolean(), array_of(fault)}), match_schema, true},
      {"json.verify_schema", {document}, tuple({boolean(), any_of({null(), string()})}), verify_schema, true},
  };
  return table;
}

}  // namespace openshell::policy::rego
