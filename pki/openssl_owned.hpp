// Owners of OpenSSL objects and its error text; private to pki/.
#pragma once

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <string_view>

namespace openshell::pki {

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* object) const noexcept {
    Free(object);
  }
};
using BioPtr = std::unique_ptr<BIO, Deleter<BIO_free_all>>;
using KeyContextPtr = std::unique_ptr<EVP_PKEY_CTX, Deleter<EVP_PKEY_CTX_free>>;
using GeneralNamesPtr = std::unique_ptr<GENERAL_NAMES, Deleter<GENERAL_NAMES_free>>;

/// INTERNAL with what failed and OpenSSL's last reason; empties the error queue, so that a later caller does not read it.
inline absl::Status openssl_error(const char* what) {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  return absl::InternalError(absl::StrCat(what, " failed: ", reason == nullptr ? "no reason given" : reason));
}

/// A read-only view of `text` as a BIO.
inline BioPtr view_bio(std::string_view text) { return BioPtr{BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))}; }

/// What was written into a memory BIO.
inline std::string bio_text(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return size <= 0 ? std::string{} : std::string(data, static_cast<std::size_t>(size));
}

}  // namespace openshell::pki
