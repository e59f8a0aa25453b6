// Labels and annotations: what they may hold, and how they are selected. Texts are those that the public interface promises.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <map>
#include <string>
#include <string_view>

namespace openshell::storage {

using Labels = std::map<std::string, std::string>;

constexpr std::size_t kMaxSelectorPairs = 64;
constexpr std::size_t kMaxLabelKeyBytes = 253;  ///< prefix and name together
constexpr std::size_t kMaxLabelPartBytes = 63;  ///< a key's name part, and a value
constexpr std::size_t kMaxAnnotations = 128;
constexpr std::size_t kMaxAnnotationValueBytes = 8192;

/// `[prefix/]name`: name 1..63 of letters, digits and `-_.`, ends alphanumeric; prefix a lower-case DNS name. ASCII only.
absl::Status check_label_key(std::string_view key);
/// Empty, or 1..63 of letters, digits and `-_.`, ends alphanumeric.
absl::Status check_label_value(std::string_view key, std::string_view value);
absl::Status check_labels(const Labels& labels);
/// Keys as labels, values free text.
absl::Status check_annotations(const Labels& annotations);

/// `k=v[,k=v...]`: blanks trimmed at every level, empty pairs skipped, split at the first `=`, the last of two equal keys counts, all pairs
/// must match. Blank text: no filter.
absl::StatusOr<Labels> parse_label_selector(std::string_view text);

}  // namespace openshell::storage
