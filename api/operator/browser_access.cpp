#include "api/operator/browser_access.hpp"

#include <absl/strings/escaping.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <cstdlib>

#include "observability/text.hpp"

namespace openshell::api {

std::string random_bytes() {
  std::string out(BrowserAccess::kBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(out.data()), static_cast<int>(out.size())) != 1)
    std::abort();  // nothing may be guessable
  return out;
}

BrowserAccess::Digest BrowserAccess::digest_of(std::string_view text) {
  Digest out;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data());
  return out;
}

std::string BrowserAccess::make_token(Time now) {
  std::string token = absl::WebSafeBase64Escape(to_absl(random_()));
  tokens_.push_back({digest_of(token), now + kTokenLife});
  if (tokens_.size() > kMaxTokens) tokens_.pop_front();
  return token;
}

std::optional<std::string> BrowserAccess::login(std::string_view token, Time now) {
  std::erase_if(tokens_, [&](const Entry& entry) { return entry.until <= now; });
  const auto digest = digest_of(token);
  // Digests are compared in full, all of them, so that time tells nothing.
  auto found = tokens_.end();
  for (auto it = tokens_.begin(); it != tokens_.end(); ++it) {
    if (CRYPTO_memcmp(it->digest.data(), digest.data(), digest.size()) == 0) found = it;
  }
  if (found == tokens_.end()) {
    std::erase_if(wrong_, [&](Time at) { return at + kTokenLife <= now; });
    wrong_.push_back(now);
    if (wrong_.size() >= kMaxWrong) {
      tokens_.clear();
      wrong_.clear();
    }
    return std::nullopt;
  }
  tokens_.erase(found);
  std::string cookie = absl::WebSafeBase64Escape(to_absl(random_()));
  cookies_.push_back({digest_of(cookie), now + kCookieLife});
  if (cookies_.size() > kMaxCookies) cookies_.pop_front();
  return cookie;
}

bool BrowserAccess::admitted(std::string_view cookie, Time now) const {
  const auto digest = digest_of(cookie);
  bool found = false;
  for (const auto& entry : cookies_) {
    if (CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0 && entry.until > now) found = true;
  }
  return found;
}

std::string_view BrowserAccess::cookie_of(std::string_view header) const {
  while (!header.empty()) {
    const auto end = std::min(header.find(';'), header.size());
    auto pair = header.substr(0, end);
    header.remove_prefix(std::min(end + 1, header.size()));
    while (pair.starts_with(' ')) pair.remove_prefix(1);
    if (pair.starts_with(cookie_name_) && pair.substr(cookie_name_.size()).starts_with('=')) return pair.substr(cookie_name_.size() + 1);
  }
  return {};
}

std::string BrowserAccess::set_cookie(std::string_view value) const {
  return cat(cookie_name_, "=", value, "; HttpOnly; SameSite=Strict; Path=/; Max-Age=", kCookieLife.count());
}

}  // namespace openshell::api
