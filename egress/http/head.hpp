// HTTP/1.1 message heads, read so strictly that no two readers can disagree on where a message ends or where it goes (RFC 9112, L7 rows).
// Pure functions over bytes; no I/O.
#pragma once

#include <absl/container/inlined_vector.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "messages/values.hpp"

namespace openshell::egress::http {

inline constexpr std::size_t kMaxHeadBytes = 16384;  ///< request or response head, the empty line included
inline constexpr std::size_t kMaxFields = 256;       ///< header fields of one head

struct Field {
  std::string name;   ///< as sent
  std::string value;  ///< as sent, without the spaces around it
};

/// Values of one name, or elements of one list: few, as a rule.
using Values = absl::InlinedVector<std::string_view, 4>;

/// Without the blanks and tabs around it.
[[nodiscard]] std::string_view trim(std::string_view text);
/// Splits at commas and trims; empty elements are kept, so that callers can refuse them.
[[nodiscard]] Values elements(std::string_view list);

/// Header fields in their order; names compare without case.
class Fields {
 public:
  void add(std::string name, std::string value) { all_.push_back({std::move(name), std::move(value)}); }
  [[nodiscard]] std::optional<std::string_view> first(std::string_view name) const;
  [[nodiscard]] Values values(std::string_view name) const;
  [[nodiscard]] bool has(std::string_view name) const { return first(name).has_value(); }
  void remove(std::string_view name);
  /// Gives the first field called `name` another value and keeps its place; adds it where there is none.
  void set(std::string_view name, std::string value);
  /// True where one of the comma-separated elements of the fields called `name` is `token`, case ignored.
  [[nodiscard]] bool lists(std::string_view name, std::string_view token) const;
  [[nodiscard]] const std::vector<Field>& all() const noexcept { return all_; }
  [[nodiscard]] std::vector<Field>& all() noexcept { return all_; }

 private:
  std::vector<Field> all_;
};

struct RequestHead {
  std::string method;
  std::string target;  ///< as sent
  int minor_version = 1;
  Fields fields;
};

struct ResponseHead {
  int status = 0;
  std::string reason;
  int minor_version = 1;
  Fields fields;
};

/// Length of the head at the start of `buffer`, or nullopt while it is not complete. INVALID_ARGUMENT for what no further byte can mend:
/// a bare LF, or more than kMaxHeadBytes. `what` begins the message: "HTTP request" or "HTTP response".
absl::StatusOr<std::optional<std::size_t>> head_length(std::string_view buffer, std::string_view what = "HTTP request");

/// `head` is what head_length measured. INVALID_ARGUMENT: answer 400; RESOURCE_EXHAUSTED: answer 431. Messages hold no byte of the input
/// but the version.
absl::StatusOr<RequestHead> parse_request_head(std::string_view head);
absl::StatusOr<ResponseHead> parse_response_head(std::string_view head);

/// Removes `Connection`, `Upgrade` and every field that `Connection` nominates: they concern one hop only.
void strip_hop_fields(Fields& fields);

std::string write_head(const RequestHead& head);
std::string write_head(const ResponseHead& head);

/// `host[:port]` of a Host field or an absolute-form target.
struct Authority {
  std::string host;  ///< lower case, no brackets, no trailing dot
  std::optional<Port> port;
};
absl::StatusOr<Authority> parse_authority(std::string_view text);

[[nodiscard]] bool is_token(std::string_view text) noexcept;
[[nodiscard]] bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept;

}  // namespace openshell::egress::http
