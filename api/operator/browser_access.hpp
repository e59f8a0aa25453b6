// Who may use the operator port from a browser: one-time tokens that become cookies. Pure: the caller gives the time. [ACT-40]
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace openshell::api {

class BrowserAccess {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr std::size_t kBytes = 32;  ///< of a token and of a cookie
  static constexpr std::size_t kMaxTokens = 8;
  static constexpr std::size_t kMaxCookies = 32;
  static constexpr std::size_t kMaxWrong = 5;  ///< in kTokenLife: all outstanding tokens are dropped
  static constexpr std::chrono::seconds kTokenLife{60};
  static constexpr std::chrono::seconds kCookieLife{43'200};

  /// `random`: kBytes unpredictable bytes. `port`: of the address in the browser. Cookies belong to a host whatever its port (RFC 6265,
  /// 8.5), so the name tells apart those of two gateways on one host.
  BrowserAccess(std::function<std::string()> random, std::string_view port)
      : random_{std::move(random)}, cookie_name_{std::string{"openshell_operator_"}.append(port)} {}

  /// A token for one login, base64url.
  std::string make_token(Time now);
  /// The cookie's value for a valid token, which is used up; nothing for any other.
  std::optional<std::string> login(std::string_view token, Time now);
  /// The value of our cookie is one that was given.
  [[nodiscard]] bool admitted(std::string_view cookie, Time now) const;

  /// The value of our cookie in a Cookie header.
  [[nodiscard]] std::string_view cookie_of(std::string_view header) const;
  /// The Set-Cookie header for it.
  [[nodiscard]] std::string set_cookie(std::string_view value) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  struct Entry {
    Digest digest;  // what was given out is not kept
    Time until;
  };
  static Digest digest_of(std::string_view text);

  std::function<std::string()> random_;
  std::string cookie_name_;
  std::deque<Entry> tokens_, cookies_;  // oldest first
  std::deque<Time> wrong_;              // of the last kTokenLife
};

/// kBytes bytes of the operating system.
[[nodiscard]] std::string random_bytes();

}  // namespace openshell::api
