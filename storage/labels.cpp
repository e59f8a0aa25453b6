#include "storage/labels.hpp"

#include <absl/strings/ascii.h>

#include <algorithm>

#include "observability/text.hpp"

namespace openshell::storage {
namespace {

bool is_alphanumeric(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); }
bool is_part_byte(char c) { return is_alphanumeric(c) || c == '-' || c == '_' || c == '.'; }
bool is_prefix_byte(char c) {
  return absl::ascii_islower(static_cast<unsigned char>(c)) || absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-' || c == '.';
}
bool is_edge(char c) { return c == '-' || c == '.'; }

absl::Status invalid(std::string text) { return absl::InvalidArgumentError(std::move(text)); }

std::string_view trimmed(std::string_view text) { return to_std(absl::StripAsciiWhitespace(to_absl(text))); }

absl::Status check_part(std::string_view what, std::string_view part, std::string_view whole) {
  if (part.size() > kMaxLabelPartBytes)
    return invalid(cat(what, " exceeds maximum length (", part.size(), " > ", kMaxLabelPartBytes, "): '", whole, "'"));
  if (!std::all_of(part.begin(), part.end(), is_part_byte)) {
    return invalid(cat(what, " must contain only alphanumeric characters, '-', '_' or '.': '", whole, "'"));
  }
  if (!is_alphanumeric(part.front()) || !is_alphanumeric(part.back()))
    return invalid(cat(what, " must start and end with an alphanumeric character: '", whole, "'"));
  return absl::OkStatus();
}

}  // namespace

absl::Status check_label_key(std::string_view key) {
  if (key.empty()) return invalid("label key cannot be empty");
  if (key.size() > kMaxLabelKeyBytes) return invalid(cat("label key exceeds maximum length (", key.size(), " > ", kMaxLabelKeyBytes, ")"));
  std::string_view name = key;
  if (const auto slash = key.find('/'); slash != std::string_view::npos) {
    const std::string_view prefix = key.substr(0, slash);
    name = key.substr(slash + 1);
    if (prefix.empty()) return invalid(cat("label key prefix cannot be empty: '", key, "'"));
    if (!std::all_of(prefix.begin(), prefix.end(), is_prefix_byte) || is_edge(prefix.front()) || is_edge(prefix.back()) ||
        prefix.find("..") != std::string_view::npos) {
      return invalid(cat("label key prefix must be a lowercase DNS name: '", key, "'"));
    }
  }
  if (name.empty()) return invalid(cat("label key name segment cannot be empty: '", key, "'"));
  return check_part("label key name segment", name, key);
}

absl::Status check_label_value(std::string_view key, std::string_view value) {
  if (value.empty()) return absl::OkStatus();
  return check_part(cat("value of label '", key, "'"), value, value);
}

absl::Status check_labels(const Labels& labels) {
  for (const auto& [key, value] : labels) {
    if (auto status = check_label_key(key); !status.ok()) return status;
    if (auto status = check_label_value(key, value); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status check_annotations(const Labels& annotations) {
  if (annotations.size() > kMaxAnnotations)
    return invalid(cat("annotations exceeds maximum entries (", annotations.size(), " > ", kMaxAnnotations, ")"));
  for (const auto& [key, value] : annotations) {
    if (auto status = check_label_key(key); !status.ok()) return status;
    if (value.size() > kMaxAnnotationValueBytes) {
      return invalid(cat("annotations value exceeds maximum length (", value.size(), " > ", kMaxAnnotationValueBytes, ")"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Labels> parse_label_selector(std::string_view text) {
  Labels selector;
  std::size_t pairs = 0;
  while (!text.empty()) {
    const auto comma = text.find(',');
    const std::string_view pair = trimmed(text.substr(0, comma));
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    if (pair.empty()) continue;
    if (++pairs > kMaxSelectorPairs) return invalid(cat("label selector exceeds ", kMaxSelectorPairs, " pair limit"));
    const auto equals = pair.find('=');
    if (equals == std::string_view::npos) return invalid(cat("invalid label selector: expected 'key=value', got '", pair, "'"));
    const std::string_view key = trimmed(pair.substr(0, equals));
    const std::string_view value = trimmed(pair.substr(equals + 1));
    if (key.empty()) return invalid(cat("invalid label selector: key cannot be empty in '", pair, "'"));
    if (auto status = check_label_key(key); !status.ok()) return status;
    if (auto status = check_label_value(key, value); !status.ok()) return status;
    selector[std::string{key}] = value;
  }
  return selector;
}

}  // namespace openshell::storage
