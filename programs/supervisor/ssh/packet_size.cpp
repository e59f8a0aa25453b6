#include "programs/supervisor/ssh/packet_size.hpp"

#include <cstring>

namespace openshell::supervisor {
namespace {

constexpr std::uint32_t kWindow = 32'000, kPacket = 35'000;  // what libssh 0.10 gives every channel that it accepts

/// The beginning of a channel of libssh 0.10.
struct Head {
  void* session;
  std::uint32_t local_channel, local_window;
  int local_eof;
  std::uint32_t local_packet, remote_channel, remote_window;
  int remote_eof;
  std::uint32_t remote_packet;
};

}  // namespace

std::optional<std::uint32_t> client_packet_size(ssh_channel channel) {
  Head head{};
  std::memcpy(&head, static_cast<const void*>(channel), sizeof head);
  const bool known = head.session == ssh_channel_get_session(channel) && head.local_window == kWindow && head.local_packet == kPacket &&
                     head.local_eof == 0 && head.remote_eof == 0 && head.remote_window == ssh_channel_window_size(channel);
  if (!known) return std::nullopt;
  return head.remote_packet;
}

}  // namespace openshell::supervisor
