#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace openshell {

/// Bytes of a summary or an error that an actor shows of itself.
inline constexpr std::size_t kMaxShownText = 256;
/// Bytes of an actor's id and of its parent's.
inline constexpr std::size_t kMaxShownId = 128;
/// Bytes of the kind of an actor.
inline constexpr std::size_t kMaxShownKind = 64;
/// Kinds of messages whose rate a snapshot shows.
inline constexpr std::size_t kMaxShownRates = 8;
/// Bytes of the name of such a kind.
inline constexpr std::size_t kMaxRateName = 32;

/// `text` as a person may see it: one line of valid UTF-8 without control characters, at most `limit` bytes, cut between characters.
/// Error texts hold no secret by rule; what has the shape of one is masked all the same (log::redacted).
[[nodiscard]] std::string shown_text(std::string_view text, std::size_t limit = kMaxShownText);

}  // namespace openshell
