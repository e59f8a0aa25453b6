// The bytes of the relay `openshell.actors/1`: messages of proto/actors.proto behind their lengths, within bounds that both sides keep.
// [ACT-39]
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors.pb.h"
#include "messages/directory.hpp"

namespace openshell {

inline constexpr std::string_view kActorsService = "openshell.actors/1";
inline constexpr std::size_t kMaxActorsMessage = 262'144;  ///< bytes of a message towards the gateway
inline constexpr std::size_t kMaxActorsRequest = 4'096;    ///< bytes of one towards the supervisor
inline constexpr std::size_t kMaxActorsPerProcess = 256;

namespace actors_wire = openshell::internal::actors::v1;

/// What one process says, within the bounds: texts are cut and cleaned, actors that do not fit into `room` bytes are counted. Returns the
/// bytes that it takes.
std::size_t fill_process(const std::vector<ActorSnapshot>& actors, std::size_t room, actors_wire::Process& out);
/// The actors of a message of the other side, checked and cleaned as if nobody had done it before.
[[nodiscard]] std::vector<ActorSnapshot> actors_of(const actors_wire::Process& process);
[[nodiscard]] ActorSnapshot actor_of(const actors_wire::Actor& actor);
void fill_actor(const ActorSnapshot& from, actors_wire::Actor& to);

template <class Message>
std::string encode_actors_frame(const Message& message) {
  const auto length = static_cast<std::uint32_t>(message.ByteSizeLong());
  std::string frame{static_cast<char>(length >> 24), static_cast<char>(length >> 16), static_cast<char>(length >> 8),
                    static_cast<char>(length)};
  message.AppendToString(&frame);
  return frame;
}

/// Takes whole messages out of a byte stream; one that is too long is refused by its length, before anything of it is kept.
class ActorsFrameDecoder {
 public:
  explicit ActorsFrameDecoder(std::size_t limit) : limit_{limit} {}
  /// INVALID_ARGUMENT: length 0 or above the limit; nothing can follow.
  absl::Status append(std::string_view bytes);
  /// One whole message, undecoded. At most `limit` bytes stay behind.
  std::optional<std::string> next();

 private:
  absl::Status check() const;
  std::size_t limit_;
  std::string buffer_;
};

}  // namespace openshell
