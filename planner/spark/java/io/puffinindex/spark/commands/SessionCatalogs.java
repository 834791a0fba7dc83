package io.puffinindex.spark.commands;

import io.puffinindex.spark.SparkParts;
import org.apache.commons.lang3.reflect.FieldUtils;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.internal.SQLConf;
import scala.collection.mutable.HashMap;

/**
 * Gives a catalog to a session that loads its other catalogs by configuration.
 *
 * <p>Spark has no method for that: it makes catalogs of classes, which it looks for where the
 * driver's own classes are.
 */
public final class SessionCatalogs {
  private SessionCatalogs() {}

  /** Put a catalog into a session; false if it has another one of the name, which stays. */
  public static boolean put(Object session, String name, Object catalog)
      throws ReflectiveOperationException {
    CatalogManager manager = manager(session);
    synchronized (manager) {
      HashMap<String, Object> catalogs = catalogs(manager);
      boolean isFree =
          catalogs.contains(name)
              ? isOurs(catalogs, name, catalog.getClass().getName())
              : !isConfigured(session, name);
      if (isFree) {
        catalogs.put(name, catalog);
      }
      return isFree;
    }
  }

  /** Take the catalog away, unless the session has another one of the name. */
  public static void remove(Object session, String name, String className)
      throws ReflectiveOperationException {
    CatalogManager manager = manager(session);
    synchronized (manager) {
      HashMap<String, Object> catalogs = catalogs(manager);
      if (isOurs(catalogs, name, className)) {
        catalogs.remove(name);
      }
    }
  }

  private static boolean isOurs(HashMap<String, Object> catalogs, String name, String className) {
    // Each loader has another class of the same name.
    return catalogs.contains(name) && catalogs.apply(name).getClass().getName().equals(className);
  }

  private static boolean isConfigured(Object session, String name)
      throws ReflectiveOperationException {
    return ((SQLConf) SparkParts.of(session, "sessionState", "conf"))
        .contains("spark.sql.catalog." + name);
  }

  private static CatalogManager manager(Object session) throws ReflectiveOperationException {
    return (CatalogManager) SparkParts.of(session, "sessionState", "catalogManager");
  }

  @SuppressWarnings("unchecked") // reflection
  private static HashMap<String, Object> catalogs(CatalogManager manager)
      throws ReflectiveOperationException {
    return (HashMap<String, Object>) FieldUtils.readField(manager, "catalogs", true);
  }
}
