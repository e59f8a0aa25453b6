#include "storage/page_token.hpp"

#include <absl/strings/escaping.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <array>

#include "observability/text.hpp"

namespace openshell::storage {
namespace {

constexpr char kVersion = 1;
constexpr std::size_t kDigestBytes = 16;
// kMaxPageTokenBytes of base64url hold this many bytes.
constexpr std::size_t kMaxRawBytes = kMaxPageTokenBytes / 4 * 3;

std::string digest(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> out{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data());
  return std::string{reinterpret_cast<const char*>(out.data()), kDigestBytes};
}

std::string mac(std::string_view key, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> out{};
  unsigned int size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data(),
       &size);
  return std::string{reinterpret_cast<const char*>(out.data()), kDigestBytes};
}

void put_text(std::string& out, std::string_view text) {
  out += static_cast<char>(text.size());
  out += text;
}

bool take_text(std::string_view& in, std::string& text) {
  if (in.empty()) return false;
  const auto size = static_cast<unsigned char>(in.front());
  if (in.size() < 1U + size) return false;
  text = in.substr(1, size);
  in.remove_prefix(1U + size);
  return true;
}

absl::Status refused() { return absl::InvalidArgumentError("page_token is damaged, or belongs to a request with other parameters"); }

}  // namespace

std::string make_page_token(std::string_view key, std::string_view binding, const Cursor& cursor) {
  std::string raw{kVersion};
  raw += digest(binding);
  for (int shift = 56; shift >= 0; shift -= 8) raw += static_cast<char>(static_cast<std::uint64_t>(cursor.position) >> shift);
  // A sort key without room is left out: the row's id finds it again.
  const std::size_t whole = raw.size() + 3 + cursor.name.size() + cursor.workspace.size() + cursor.id.size() + kDigestBytes;
  const bool fits = whole <= kMaxRawBytes;
  put_text(raw, fits ? cursor.name : "");
  put_text(raw, fits ? cursor.workspace : "");
  put_text(raw, cursor.id);
  raw += mac(key, raw);
  return absl::WebSafeBase64Escape(raw);
}

absl::StatusOr<std::optional<Cursor>> read_page_token(std::string_view key, std::string_view binding, std::string_view token) {
  if (token.empty()) return std::nullopt;
  std::string raw;
  if (token.size() > kMaxPageTokenBytes || !absl::WebSafeBase64Unescape(to_absl(token), &raw)) return refused();
  if (raw.size() < 1 + kDigestBytes + 8 + 3 + kDigestBytes || raw.front() != kVersion) return refused();
  const std::string_view body{raw.data(), raw.size() - kDigestBytes};
  if (CRYPTO_memcmp(mac(key, body).data(), raw.data() + body.size(), kDigestBytes) != 0) return refused();
  std::string_view rest = body.substr(1);
  if (rest.substr(0, kDigestBytes) != digest(binding)) return refused();
  rest.remove_prefix(kDigestBytes);
  Cursor cursor;
  std::uint64_t position = 0;
  for (int i = 0; i < 8; ++i) position = position << 8 | static_cast<unsigned char>(rest[static_cast<std::size_t>(i)]);
  cursor.position = static_cast<std::int64_t>(position);
  rest.remove_prefix(8);
  if (!take_text(rest, cursor.name) || !take_text(rest, cursor.workspace) || !take_text(rest, cursor.id) || !rest.empty()) return refused();
  return cursor;
}

}  // namespace openshell::storage
