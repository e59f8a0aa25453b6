// DNS messages, both directions, read strictly (RFC 1035, RFC 6891 for what merely parses). Pure functions over bytes.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "egress/ip_address.hpp"

namespace openshell::egress::dns {

inline constexpr std::size_t kMaxMessageBytes = 8192;  ///< either way
inline constexpr std::size_t kMaxAddresses = 16;       ///< distinct addresses kept of one answer
inline constexpr int kMaxCnames = 8;                   ///< hops of one lookup

inline constexpr std::uint16_t kTypeA = 1;
inline constexpr std::uint16_t kTypeCname = 5;
inline constexpr std::uint16_t kTypeAaaa = 28;

enum class Rcode : std::uint8_t { kNoError = 0, kFormErr = 1, kServFail = 2, kNxDomain = 3, kNotImp = 4, kRefused = 5 };

/// One question of a workload.
struct Query {
  std::uint16_t id = 0;
  bool recursion_desired = false;
  std::string question;  ///< name, type and class as sent: echoed byte for byte
  std::string name;      ///< dotted, lower case, no final dot; empty: the root, or a label with a byte that no host name has
  std::uint16_t type = 0;
};

/// What a message that is no answerable query is told.
struct Malformed {
  Rcode rcode = Rcode::kFormErr;
  std::uint16_t id = 0;
};

struct ParsedQuery {
  std::optional<Query> query;
  Malformed error;       ///< where there is no query
  std::string question;  ///< echoed with NOTIMP
};
ParsedQuery parse_query(std::string_view message);

/// RA set, question echoed, one address record where `address` is given (its family must be the question's).
std::string build_answer(const Query& query, Rcode rcode, std::optional<IpAddress> address = std::nullopt, std::uint32_t ttl_seconds = 0);
std::string build_error(const Malformed& error, std::string_view question = {});

/// The question that the trusted resolver is asked. INVALID_ARGUMENT for a name that does not fit.
absl::StatusOr<std::string> build_question(std::uint16_t id, std::string_view name, std::uint16_t type);

/// What a trusted resolver answered.
struct Reply {
  Rcode rcode = Rcode::kServFail;
  bool truncated = false;
  std::string canonical_name;        ///< end of the CNAME chain inside this message
  int cnames = 0;                    ///< hops of that chain
  std::vector<IpAddress> addresses;  ///< of canonical_name, distinct, in order
  std::uint32_t ttl_seconds = 0;     ///< least of the chain and the addresses
};
/// INVALID_ARGUMENT: not the answer to this question, or malformed.
absl::StatusOr<Reply> parse_reply(std::string_view message, std::uint16_t id, std::string_view name, std::uint16_t type);

}  // namespace openshell::egress::dns
