#include "pki/certificate.hpp"

#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <arpa/inet.h>
#include <openssl/bn.h>
#include <openssl/pem.h>
#include <openssl/sha.h>
#include <openssl/x509.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "pki/openssl_owned.hpp"

namespace openshell::pki {
namespace {

constexpr int kSerialBits = 127;  // positive, at most 16 bytes (RFC 5280 allows 20)

std::shared_ptr<X509> own(X509* certificate) { return {certificate, X509_free}; }

std::vector<std::string> subject_entries(X509* certificate, int nid) {
  std::vector<std::string> found;
  X509_NAME* name = X509_get_subject_name(certificate);
  for (int at = X509_NAME_get_index_by_NID(name, nid, -1); at >= 0; at = X509_NAME_get_index_by_NID(name, nid, at)) {
    unsigned char* utf8 = nullptr;
    const int size = ASN1_STRING_to_UTF8(&utf8, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at)));
    if (size < 0) continue;
    found.emplace_back(reinterpret_cast<char*>(utf8), static_cast<std::size_t>(size));
    OPENSSL_free(utf8);
  }
  return found;
}

GeneralNamesPtr alternative_names(X509* certificate) {
  return GeneralNamesPtr{static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr))};
}

std::string octets(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)), static_cast<std::size_t>(ASN1_STRING_length(text))};
}

std::string address_text(const std::string& bytes) {
  char text[INET6_ADDRSTRLEN] = {};
  const int family = bytes.size() == 4 ? AF_INET : AF_INET6;
  if (bytes.size() != 4 && bytes.size() != 16) return {};
  return inet_ntop(family, bytes.data(), text, sizeof text) == nullptr ? std::string{} : std::string{text};
}

Instant instant_of(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return Instant{};
  return Instant{std::chrono::seconds{timegm(&parts)}};
}

bool add_entry(X509_NAME* name, const char* field, const std::string& text) {
  return text.empty() || X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(text.data()),
                                                    static_cast<int>(text.size()), -1, 0) == 1;
}

absl::Status set_validity(X509* certificate, Instant not_before, Instant not_after) {
  if (not_before >= not_after) return absl::InvalidArgumentError("certificate validity ends before it begins");
  if (ASN1_TIME_set(X509_getm_notBefore(certificate), not_before.time_since_epoch().count()) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(certificate), not_after.time_since_epoch().count()) == nullptr) {
    return openssl_error("setting the validity of a certificate");
  }
  return absl::OkStatus();
}

absl::Status set_serial(X509* certificate) {
  const std::unique_ptr<BIGNUM, Deleter<BN_free>> number{BN_new()};
  if (number == nullptr || BN_rand(number.get(), kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) != 1 ||
      BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) == nullptr) {
    return openssl_error("choosing a serial number");
  }
  return absl::OkStatus();
}

// `value` holds fixed text of this file only: OpenSSL's configuration language would let other text add extensions.
bool add_fixed_extension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, Deleter<X509_EXTENSION_free>> extension{X509V3_EXT_conf_nid(nullptr, &context, nid, value)};
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool push_name(GENERAL_NAMES* names, int type, const std::string& bytes) {
  std::unique_ptr<GENERAL_NAME, Deleter<GENERAL_NAME_free>> name{GENERAL_NAME_new()};
  ASN1_STRING* value = ASN1_STRING_type_new(type == GEN_DNS ? V_ASN1_IA5STRING : V_ASN1_OCTET_STRING);
  if (name == nullptr || value == nullptr || ASN1_STRING_set(value, bytes.data(), static_cast<int>(bytes.size())) != 1) {
    ASN1_STRING_free(value);
    return false;
  }
  GENERAL_NAME_set0_value(name.get(), type, value);
  if (sk_GENERAL_NAME_push(names, name.get()) <= 0) return false;
  (void)name.release();  // the list owns it now
  return true;
}

bool is_dns_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '*';
  };
  return !name.empty() && name.size() <= 253 && std::all_of(name.begin(), name.end(), allowed);
}

std::string address_bytes(const std::string& text) {
  unsigned char bytes[16];
  if (inet_pton(AF_INET, text.c_str(), bytes) == 1) return {reinterpret_cast<char*>(bytes), 4};
  if (inet_pton(AF_INET6, text.c_str(), bytes) == 1) return {reinterpret_cast<char*>(bytes), 16};
  return {};
}

absl::Status add_alternative_names(X509* certificate, const LeafProfile& profile) {
  if (profile.dns_names.empty() && profile.ip_addresses.empty()) return absl::OkStatus();
  if (profile.dns_names.size() + profile.ip_addresses.size() > kMaxSubjectNames) {
    return absl::InvalidArgumentError(absl::StrCat("a certificate holds at most ", kMaxSubjectNames, " alternative names"));
  }
  const GeneralNamesPtr names{GENERAL_NAMES_new()};
  for (const std::string& name : profile.dns_names) {
    if (!is_dns_name(name)) return absl::InvalidArgumentError(absl::StrCat("\"", absl::CHexEscape(name), "\" is no DNS name"));
    if (!push_name(names.get(), GEN_DNS, name)) return openssl_error("adding a DNS name");
  }
  for (const std::string& address : profile.ip_addresses) {
    const std::string bytes = address_bytes(address);
    if (bytes.empty()) return absl::InvalidArgumentError(absl::StrCat("\"", absl::CHexEscape(address), "\" is no IP address"));
    if (!push_name(names.get(), GEN_IPADD, bytes)) return openssl_error("adding an IP address");
  }
  const int critical = profile.common_name.empty() && profile.organizational_units.empty() ? 1 : 0;
  if (X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), critical, X509V3_ADD_DEFAULT) != 1)
    return openssl_error("adding alternative names");
  return absl::OkStatus();
}

absl::Status sign(X509* certificate, EVP_PKEY* key) {
  const EVP_MD* digest = EVP_PKEY_get_base_id(key) == EVP_PKEY_ED25519 ? nullptr : EVP_sha256();
  if (X509_sign(certificate, key, digest) <= 0) return openssl_error("signing a certificate");
  return absl::OkStatus();
}

const char* usage_text(Usage usage) {
  switch (usage) {
    case Usage::kServer:
      return "serverAuth";
    case Usage::kClient:
      return "clientAuth";
    case Usage::kServerAndClient:
      return "serverAuth,clientAuth";
  }
  return "serverAuth";
}

}  // namespace

absl::StatusOr<Certificate> Certificate::from_pem(std::string_view pem) {
  if (pem.size() > kMaxBundlePemBytes)
    return absl::InvalidArgumentError(absl::StrCat("certificate file is larger than ", kMaxBundlePemBytes, " bytes"));
  const BioPtr bio = view_bio(pem);
  X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr);
  if (certificate == nullptr) {
    ERR_clear_error();
    return absl::InvalidArgumentError("no certificates found in file");
  }
  return Certificate{own(certificate)};
}

Certificate Certificate::share(x509_st* certificate) {
  X509_up_ref(certificate);
  return Certificate{own(certificate)};
}

std::string Certificate::to_pem() const {
  const BioPtr bio{BIO_new(BIO_s_mem())};
  return PEM_write_bio_X509(bio.get(), certificate_.get()) == 1 ? bio_text(bio.get()) : std::string{};
}

std::string Certificate::to_der() const {
  unsigned char* der = nullptr;
  const int size = i2d_X509(certificate_.get(), &der);
  if (size <= 0) return {};
  std::string bytes(reinterpret_cast<char*>(der), static_cast<std::size_t>(size));
  OPENSSL_free(der);
  return bytes;
}

std::string Certificate::common_name() const {
  const auto names = subject_entries(certificate_.get(), NID_commonName);
  return names.empty() ? std::string{} : names.front();
}

std::vector<std::string> Certificate::organizational_units() const {
  return subject_entries(certificate_.get(), NID_organizationalUnitName);
}

std::vector<std::string> Certificate::dns_names() const {
  std::vector<std::string> found;
  const GeneralNamesPtr names = alternative_names(certificate_.get());
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_DNS) found.push_back(octets(name->d.dNSName));
  }
  return found;
}

std::vector<std::string> Certificate::ip_addresses() const {
  std::vector<std::string> found;
  const GeneralNamesPtr names = alternative_names(certificate_.get());
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_IPADD) found.push_back(address_text(octets(name->d.iPAddress)));
  }
  return found;
}

bool Certificate::is_ca() const { return X509_check_ca(certificate_.get()) == 1; }
Instant Certificate::not_before() const { return instant_of(X509_get0_notBefore(certificate_.get())); }
Instant Certificate::not_after() const { return instant_of(X509_get0_notAfter(certificate_.get())); }

std::string Certificate::sha256() const {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  unsigned int size = 0;
  if (X509_digest(certificate_.get(), EVP_sha256(), digest, &size) != 1) return {};
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<char*>(digest), size));
}

bool Certificate::matches(const PrivateKey& key) const {
  const bool same = X509_check_private_key(certificate_.get(), key.native()) == 1;
  ERR_clear_error();
  return same;
}

absl::StatusOr<std::vector<Certificate>> certificates_from_pem(std::string_view pem) {
  if (pem.size() > kMaxBundlePemBytes)
    return absl::InvalidArgumentError(absl::StrCat("certificate bundle is larger than ", kMaxBundlePemBytes, " bytes"));
  std::vector<Certificate> found;
  const BioPtr bio = view_bio(pem);
  char* name = nullptr;
  char* header = nullptr;
  unsigned char* data = nullptr;
  long size = 0;
  absl::Status bad;
  while (bad.ok() && PEM_read_bio(bio.get(), &name, &header, &data, &size) == 1) {
    const std::string_view block{name};
    if (absl::EndsWith(absl::string_view(name), "PRIVATE KEY")) {
      bad = absl::InvalidArgumentError("certificate bundle holds a private key");
    } else if (block == "CERTIFICATE" || block == "X509 CERTIFICATE" || block == "TRUSTED CERTIFICATE") {
      const unsigned char* at = data;
      X509* certificate = found.size() == kMaxBundleCertificates ? nullptr : d2i_X509(nullptr, &at, size);
      if (certificate != nullptr) {
        found.push_back(Certificate::share(certificate));
        X509_free(certificate);
      } else {
        bad = found.size() == kMaxBundleCertificates
                  ? absl::InvalidArgumentError(absl::StrCat("certificate bundle holds more than ", kMaxBundleCertificates, " certificates"))
                  : absl::InvalidArgumentError(absl::StrCat("certificate ", found.size() + 1, " of the bundle does not parse"));
      }
    }
    OPENSSL_free(name);
    OPENSSL_free(header);
    OPENSSL_clear_free(data, static_cast<std::size_t>(size));
  }
  const bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!bad.ok()) return bad;
  if (!ended) return absl::InvalidArgumentError(absl::StrCat("block ", found.size() + 1, " of the certificate bundle is damaged"));
  if (found.empty()) return absl::InvalidArgumentError("no certificates found in file");
  return found;
}

std::string chain_pem(const Certificate& leaf, const std::vector<Certificate>& issuers) {
  std::string text = leaf.to_pem();
  for (const Certificate& issuer : issuers) text += issuer.to_pem();
  return text;
}

LeafProfile server_profile(std::string_view host) {
  LeafProfile profile;
  const std::string name{host};
  if (name.size() <= kMaxCommonNameBytes) profile.common_name = name;
  (address_bytes(name).empty() ? profile.dns_names : profile.ip_addresses).push_back(name);
  return profile;
}

absl::StatusOr<CertificateAuthority> CertificateAuthority::create(const AuthorityProfile& profile) {
  if (profile.common_name.size() > kMaxCommonNameBytes)
    return absl::InvalidArgumentError("the common name of a CA is longer than 64 bytes");
  auto key = PrivateKey::generate(profile.key_kind);
  if (!key.ok()) return key.status();
  const auto certificate = own(X509_new());
  X509* raw = certificate.get();
  X509_set_version(raw, X509_VERSION_3);
  if (auto status = set_serial(raw); !status.ok()) return status;
  if (auto status = set_validity(raw, profile.not_before, profile.not_after); !status.ok()) return status;
  X509_NAME* name = X509_get_subject_name(raw);
  if (!add_entry(name, "O", profile.organization) || !add_entry(name, "CN", profile.common_name) || X509_set_issuer_name(raw, name) != 1 ||
      X509_set_pubkey(raw, key->native()) != 1 || !add_fixed_extension(raw, raw, NID_basic_constraints, "critical,CA:TRUE") ||
      !add_fixed_extension(raw, raw, NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !add_fixed_extension(raw, raw, NID_subject_key_identifier, "hash")) {
    return openssl_error("building a CA certificate");
  }
  if (auto status = sign(raw, key->native()); !status.ok()) return status;
  return CertificateAuthority{Certificate{certificate}, std::move(*key)};
}

absl::StatusOr<CertificateAuthority> CertificateAuthority::load(std::string_view certificate_pem, const Secret& key_pem) {
  auto certificate = Certificate::from_pem(certificate_pem);
  if (!certificate.ok()) return certificate.status();
  auto key = PrivateKey::from_pem(key_pem);
  if (!key.ok()) return key.status();
  if (!certificate->matches(*key)) return absl::FailedPreconditionError("the CA key is not the key of the CA certificate");
  if (!certificate->is_ca()) return absl::FailedPreconditionError("the certificate is no CA certificate");
  return CertificateAuthority{std::move(*certificate), std::move(*key)};
}

absl::StatusOr<Certificate> CertificateAuthority::issue(const LeafProfile& profile, const PrivateKey& leaf_key) const {
  if (profile.common_name.size() > kMaxCommonNameBytes)
    return absl::InvalidArgumentError("the common name of a certificate is longer than 64 bytes");
  const auto certificate = own(X509_new());
  X509* raw = certificate.get();
  X509_set_version(raw, X509_VERSION_3);
  if (auto status = set_serial(raw); !status.ok()) return status;
  if (auto status = set_validity(raw, profile.not_before, profile.not_after); !status.ok()) return status;
  X509_NAME* name = X509_get_subject_name(raw);
  bool named = add_entry(name, "CN", profile.common_name);
  for (const std::string& unit : profile.organizational_units) named = named && add_entry(name, "OU", unit);
  if (!named || X509_set_issuer_name(raw, X509_get_subject_name(certificate_.native())) != 1 ||
      X509_set_pubkey(raw, leaf_key.native()) != 1) {
    return openssl_error("naming a certificate");
  }
  X509* issuer = certificate_.native();
  if (!add_fixed_extension(raw, issuer, NID_basic_constraints, "critical,CA:FALSE") ||
      !add_fixed_extension(raw, issuer, NID_key_usage, "critical,digitalSignature") ||
      !add_fixed_extension(raw, issuer, NID_ext_key_usage, usage_text(profile.usage)) ||
      !add_fixed_extension(raw, issuer, NID_subject_key_identifier, "hash") ||
      !add_fixed_extension(raw, issuer, NID_authority_key_identifier, "keyid")) {
    return openssl_error("adding certificate extensions");
  }
  if (auto status = add_alternative_names(raw, profile); !status.ok()) return status;
  if (auto status = sign(raw, key_.native()); !status.ok()) return status;
  return Certificate{certificate};
}

absl::StatusOr<Identity> CertificateAuthority::issue(const LeafProfile& profile, KeyKind kind) const {
  auto key = PrivateKey::generate(kind);
  if (!key.ok()) return key.status();
  auto certificate = issue(profile, *key);
  if (!certificate.ok()) return certificate.status();
  return Identity{std::move(*certificate), std::move(*key)};
}

absl::Status verify_chain(const Certificate& leaf, const std::vector<Certificate>& intermediates, const std::vector<Certificate>& roots,
                          Usage usage) {
  const std::unique_ptr<X509_STORE, Deleter<X509_STORE_free>> store{X509_STORE_new()};
  for (const Certificate& root : roots) X509_STORE_add_cert(store.get(), root.native());
  STACK_OF(X509)* untrusted = sk_X509_new_null();
  for (const Certificate& intermediate : intermediates) sk_X509_push(untrusted, intermediate.native());
  const std::unique_ptr<X509_STORE_CTX, Deleter<X509_STORE_CTX_free>> context{X509_STORE_CTX_new()};
  absl::Status status;
  if (X509_STORE_CTX_init(context.get(), store.get(), leaf.native(), untrusted) != 1) {
    status = openssl_error("preparing a verification");
  } else {
    if (usage != Usage::kClient) X509_STORE_CTX_set_purpose(context.get(), X509_PURPOSE_SSL_SERVER);
    if (usage == Usage::kClient) X509_STORE_CTX_set_purpose(context.get(), X509_PURPOSE_SSL_CLIENT);
    if (X509_verify_cert(context.get()) != 1) {
      status = absl::PermissionDeniedError(
          absl::StrCat("certificate is not accepted: ", X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()))));
    }
  }
  sk_X509_free(untrusted);
  ERR_clear_error();
  return status;
}

}  // namespace openshell::pki
