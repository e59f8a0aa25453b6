#include "egress/websocket/handshake.hpp"

#include <absl/strings/escaping.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace openshell::egress::websocket {
namespace {

constexpr std::string_view kGuid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";  // RFC 6455 section 1.3
constexpr std::size_t kKeyBytes = 16;

std::string accept_of(std::string_view key) {
  const std::string text = std::string{key} + std::string{kGuid};
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha1(), nullptr);
  return absl::Base64Escape({reinterpret_cast<const char*>(digest.data()), size});
}

/// The elements of all fields called `name`; one that is empty or no token spoils the list.
bool tokens(const http::Fields& fields, std::string_view name, std::vector<std::string>& out) {
  for (const auto value : fields.values(name)) {
    for (const auto element : http::elements(value)) {
      if (!http::is_token(element)) return false;
      out.emplace_back(element);
    }
  }
  return true;
}

}  // namespace

bool is_upgrade(const http::RequestHead& head) {
  const auto key = head.fields.values("sec-websocket-key");
  const auto version = head.fields.values("sec-websocket-version");
  std::string decoded;
  std::vector<std::string> protocols;
  return head.method == "GET" && head.minor_version == 1 && head.fields.values("upgrade").size() == 1 &&
         head.fields.lists("upgrade", "websocket") && head.fields.lists("connection", "upgrade") && key.size() == 1 &&
         absl::Base64Unescape({key.front().data(), key.front().size()}, &decoded) && decoded.size() == kKeyBytes && version.size() == 1 &&
         version.front() == "13" && tokens(head.fields, "sec-websocket-protocol", protocols);
}

Offer restrict_offer(http::RequestHead& head) {
  Offer out;
  out.accept = accept_of(*head.fields.first("sec-websocket-key"));
  tokens(head.fields, "sec-websocket-protocol", out.protocols);
  head.fields.remove("sec-websocket-extensions");
  return out;
}

absl::Status check_accepted(const http::ResponseHead& head, const Offer& offer) {
  const auto bad = [](const char* what) { return absl::InvalidArgumentError(what); };
  const auto& fields = head.fields;
  if (head.minor_version != 1 || !fields.lists("upgrade", "websocket") || !fields.lists("connection", "upgrade"))
    return bad("the response upgrades to something else than WebSocket");
  const auto accept = fields.values("sec-websocket-accept");
  if (accept.size() != 1 || accept.front() != offer.accept) return bad("the response accepts another WebSocket handshake");
  if (fields.has("sec-websocket-extensions")) return bad("the response uses a WebSocket extension that was not offered");
  std::vector<std::string> chosen;
  if (!tokens(fields, "sec-websocket-protocol", chosen) || chosen.size() > 1)
    return bad("the response names no single WebSocket subprotocol");
  if (!chosen.empty() && std::find(offer.protocols.begin(), offer.protocols.end(), chosen.front()) == offer.protocols.end())
    return bad("the response names a WebSocket subprotocol that was not offered");
  return absl::OkStatus();
}

}  // namespace openshell::egress::websocket
