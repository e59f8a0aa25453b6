// X.509 certificates: reading, asking, issuing. RFC 5280; OpenSSL 3 does the encoding.
// All types are immutable values, cheap to copy and safe to share between threads. No CAF, no files: callers read and write those.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pki/keys.hpp"

struct x509_st;

namespace openshell::pki {

inline constexpr std::size_t kMaxBundlePemBytes = 1024 * 1024;  ///< Bytes of a PEM bundle that is read, e.g. an additional CA bundle.
inline constexpr std::size_t kMaxBundleCertificates = 1024;     ///< Certificates in one bundle; Debian's whole root store has about 150.
inline constexpr std::size_t kMaxCommonNameBytes = 64;          ///< RFC 5280 ub-common-name.
inline constexpr std::size_t kMaxSubjectNames = 256;            ///< Subject alternative names of one certificate that we issue.

using Instant = std::chrono::sys_seconds;

/// Long enough that a bearer, not the clock of a certificate, limits authority: 1975-01-01 to 4096-01-01.
inline constexpr Instant kLongPast{std::chrono::sys_days{std::chrono::year{1975} / 1 / 1}};
inline constexpr Instant kLongFuture{std::chrono::sys_days{std::chrono::year{4096} / 1 / 1}};

/// One certificate.
class Certificate {
 public:
  /// Exactly one certificate, or the first of several.
  static absl::StatusOr<Certificate> from_pem(std::string_view pem);
  /// Takes its own reference of a certificate that OpenSSL holds, e.g. the peer's.
  static Certificate share(x509_st* certificate);

  [[nodiscard]] std::string to_pem() const;
  [[nodiscard]] std::string to_der() const;
  [[nodiscard]] std::string common_name() const;                        ///< Empty where there is none.
  [[nodiscard]] std::vector<std::string> organizational_units() const;  ///< In the order of the subject.
  [[nodiscard]] std::vector<std::string> dns_names() const;             ///< DNS SANs as written, wildcards included.
  [[nodiscard]] std::vector<std::string> ip_addresses() const;          ///< IP SANs in their usual text form.
  [[nodiscard]] bool is_ca() const;
  [[nodiscard]] Instant not_before() const;
  [[nodiscard]] Instant not_after() const;
  [[nodiscard]] std::string sha256() const;  ///< Fingerprint, 64 lower-case hex digits.
  [[nodiscard]] bool matches(const PrivateKey& key) const;

  [[nodiscard]] x509_st* native() const noexcept { return certificate_.get(); }

 private:
  friend class CertificateAuthority;
  explicit Certificate(std::shared_ptr<x509_st> certificate) : certificate_{std::move(certificate)} {}
  std::shared_ptr<x509_st> certificate_;
};

/// All certificates of a PEM bundle in their order; other blocks are skipped, except that a private key in it is refused (a bundle is
/// public). INVALID_ARGUMENT: none found, too large, too many, one that does not parse (the message says which one).
absl::StatusOr<std::vector<Certificate>> certificates_from_pem(std::string_view pem);

/// Leaf first, then what signed it, as TLS servers send it.
std::string chain_pem(const Certificate& leaf, const std::vector<Certificate>& issuers);

/// What a leaf may be used for; becomes its extended key usage.
enum class Usage { kServer, kClient, kServerAndClient };

/// Wishes for one leaf. Names are copied into the structures of the certificate one by one, never through OpenSSL's configuration language,
/// so a hostile host name can add no second name.
struct LeafProfile {
  std::string common_name = {};  ///< At most kMaxCommonNameBytes; empty: no CN, and the alternative names become critical.
  std::vector<std::string> organizational_units = {};
  std::vector<std::string> dns_names = {};     ///< ASCII, wildcards allowed.
  std::vector<std::string> ip_addresses = {};  ///< IPv4 or IPv6 literals.
  Usage usage = Usage::kServer;
  Instant not_before = kLongPast;
  Instant not_after = kLongFuture;
};

/// The profile of a server certificate for one host name or IP literal: the name as SAN, and as CN where it fits.
LeafProfile server_profile(std::string_view host);

/// Who a CA is.
struct AuthorityProfile {
  std::string common_name = {};
  std::string organization = {};  ///< Empty: none.
  KeyKind key_kind = KeyKind::kP256;
  Instant not_before = kLongPast;
  Instant not_after = kLongFuture;
};

/// A leaf with its key.
struct Identity {
  Certificate certificate;
  PrivateKey key;
};

/// A certificate authority with its key. `issue` is const and may be called from several threads at once; a P-256 leaf for a key that
/// exists already takes well under a millisecond, so one leaf key can serve every intercepted host of a session.
class CertificateAuthority {
 public:
  /// A new self-signed CA (basicConstraints CA:TRUE, no path length; keyCertSign, cRLSign).
  static absl::StatusOr<CertificateAuthority> create(const AuthorityProfile& profile);
  /// FAILED_PRECONDITION where the key is not the certificate's or the certificate is no CA.
  static absl::StatusOr<CertificateAuthority> load(std::string_view certificate_pem, const Secret& key_pem);

  /// A leaf for a key that the caller keeps (and may reuse).
  [[nodiscard]] absl::StatusOr<Certificate> issue(const LeafProfile& profile, const PrivateKey& leaf_key) const;
  /// A leaf with a fresh key.
  [[nodiscard]] absl::StatusOr<Identity> issue(const LeafProfile& profile, KeyKind kind) const;

  [[nodiscard]] const Certificate& certificate() const noexcept { return certificate_; }
  [[nodiscard]] const PrivateKey& key() const noexcept { return key_; }

 private:
  CertificateAuthority(Certificate certificate, PrivateKey key) : certificate_{std::move(certificate)}, key_{std::move(key)} {}
  Certificate certificate_;
  PrivateKey key_;
};

/// OK where `leaf` chains to one of `roots` for `usage` now. PERMISSION_DENIED with OpenSSL's reason otherwise.
absl::Status verify_chain(const Certificate& leaf, const std::vector<Certificate>& intermediates, const std::vector<Certificate>& roots,
                          Usage usage);

}  // namespace openshell::pki
